#include "teson/train/gradient_norm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>

#include "teson/base/check.h"

namespace teson::train {
namespace {

// Element i of a block goes to partial sum i mod 16, so that the compiler may use vectors of any
// width and the bits stay.
constexpr std::int64_t kPartials = 16;

double block_sum(const float* gradients, std::int64_t count) {
  std::array<double, kPartials> partial{};
  const std::int64_t whole = count / kPartials * kPartials;
  for (std::int64_t i = 0; i < whole; i += kPartials) {
    for (std::int64_t j = 0; j < kPartials; ++j) {
      const auto value = static_cast<double>(gradients[i + j]);
      partial[static_cast<std::size_t>(j)] += value * value;
    }
  }
  for (std::int64_t i = whole; i < count; ++i) {
    const auto value = static_cast<double>(gradients[i]);
    partial[static_cast<std::size_t>(i - whole)] += value * value;
  }
  return combine_square_sums(partial);
}

}  // namespace

void block_square_sums(const FlatLayout& layout, const float* gradients, std::size_t first,
                       std::span<double> sums) {
  TESON_CHECK(first + sums.size() <= layout.blocks.size(), first, sums.size(),
              layout.blocks.size());
  at::parallel_for(
      0, static_cast<std::int64_t>(sums.size()), 1, [&](std::int64_t from, std::int64_t to) {
        for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i) {
          const FlatBlock& block = layout.blocks[first + i];
          sums[i] = block_sum(gradients + block.begin, block.end - block.begin);
        }
      });
}

double combine_square_sums(std::span<const double> sums) {
  if (sums.empty()) return 0.0;
  if (sums.size() == 1) return sums.front();
  const std::size_t left = std::bit_ceil(sums.size()) / 2;
  return combine_square_sums(sums.first(left)) + combine_square_sums(sums.subspan(left));
}

double square_sum(const FlatLayout& layout, const float* gradients) {
  std::vector<double> sums(layout.blocks.size());
  block_square_sums(layout, gradients, 0, sums);
  return combine_square_sums(sums);
}

double clip_factor(double norm, double norm_max) {
  if (norm_max <= 0 || !std::isfinite(norm) || norm <= norm_max) return 1.0;
  return norm_max / norm;
}

}  // namespace teson::train
