#include "teson/model/rotary.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "teson/job/presets.h"
#include "teson/model/llama_reference_test.h"

namespace teson::model {
namespace {

TEST(Rotary, plain_frequencies_are_powers_of_theta) {
  const auto shape = job::preset_shape("llama3-8b").value();
  const auto frequencies = rotary_frequencies(shape);
  ASSERT_EQ(frequencies.size(), 64U);
  EXPECT_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[32], 1.0 / std::sqrt(500000.0), 1e-17);
  for (std::size_t i = 1; i < frequencies.size(); ++i)
    EXPECT_NEAR(frequencies[i] / frequencies[i - 1], std::exp(-std::log(500000.0) / 64), 1e-14);
}

TEST(Rotary, llama_3_1_keeps_short_waves_divides_long_ones_and_is_linear_between) {
  for (const char* name : {"llama3.1-405b", "llama3.2-1b", "llama3.2-3b"}) {
    const auto shape = job::preset_shape(name).value();
    auto unscaled = shape;
    unscaled.rope_scaling.reset();
    const auto frequencies = rotary_frequencies(shape), plain = rotary_frequencies(unscaled);
    int between = 0;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const double waves = 8192.0 * plain[i] / (2 * std::numbers::pi);  // in the original context
      const double factor = shape.rope_scaling->factor;
      double expected = plain[i];
      if (waves < 1) expected = plain[i] / factor;
      if (waves >= 1 && waves <= 4) {
        ++between;
        expected = plain[i] * (1 / factor + (1 - 1 / factor) * (waves - 1) / 3);
      }
      EXPECT_NEAR(frequencies[i], expected, 1e-14 * expected) << name << " " << i;
    }
    EXPECT_GT(between, 2) << name;
  }
}

TEST(Rotary, the_reference_has_the_same_frequencies) {
  for (const job::Preset& preset : job::presets()) {
    const auto ours = rotary_frequencies(preset.shape),
               theirs = reference_frequencies(preset.shape);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_NEAR(ours[i], theirs[i], 1e-14 * theirs[i]);
  }
}

}  // namespace
}  // namespace teson::model
