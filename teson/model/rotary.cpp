#include "teson/model/rotary.h"

#include <cmath>
#include <numbers>

namespace teson::model {
namespace {

double stretch(double frequency, const job::RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(scaling.original_context);
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rotary_frequencies(const job::ModelShape& shape) {
  const std::int64_t size = shape.head_size();
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double frequency =
        std::pow(shape.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    frequencies.push_back(shape.rope_scaling ? stretch(frequency, *shape.rope_scaling) : frequency);
  }
  return frequencies;
}

}  // namespace teson::model
