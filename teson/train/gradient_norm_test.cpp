#include "teson/train/gradient_norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::train {
namespace {

const std::vector<std::int64_t> kSizes = {
    1, 3, 16, 17, 1000, kFlatBlock - 1, kFlatBlock, kFlatBlock + 1, 3 * kFlatBlock + 5};

FlatLayout layout_of(const std::vector<std::int64_t>& sizes) {
  FlatLayout layout;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    layout.add(std::to_string(i), {sizes[i]}, false);
  return layout;
}

std::vector<float> gradients_of(const FlatLayout& layout) {
  std::vector<float> values(static_cast<std::size_t>(layout.elements), 0.0F);
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    CounterRandom random({e});
    const FlatEntry& entry = layout.entries[e];
    for (std::int64_t i = 0; i < entry.elements; ++i)
      values[static_cast<std::size_t>(entry.offset + i)] =
          static_cast<float>(random.normal() * std::pow(10.0, e));
  }
  return values;
}

TEST(FlatLayout, aligns_parameters_and_cuts_blocks_within_them) {
  const FlatLayout layout = layout_of(kSizes);
  std::int64_t covered = 0;
  for (const FlatEntry& entry : layout.entries) {
    EXPECT_EQ(entry.offset % kFlatAlignment, 0);
    EXPECT_GE(entry.offset, covered);
    EXPECT_LT(entry.offset - covered, kFlatAlignment);
    covered = entry.offset + entry.elements;
  }
  EXPECT_EQ(layout.elements % kFlatAlignment, 0);
  std::int64_t in_blocks = 0, in_entries = 0;
  for (const FlatEntry& entry : layout.entries)
    in_entries += entry.elements;
  for (const FlatBlock& block : layout.blocks) {
    EXPECT_LE(block.end - block.begin, kFlatBlock);
    in_blocks += block.end - block.begin;
  }
  EXPECT_EQ(in_blocks, in_entries);
  EXPECT_EQ(layout.blocks.size(), 1U + 1 + 1 + 1 + 1 + 1 + 1 + 2 + 4);
  EXPECT_EQ(layout.find("3")->elements, 17);
  EXPECT_EQ(layout.find("x"), nullptr);
}

TEST(GradientNorm, equals_the_sum_in_long_double) {
  const FlatLayout layout = layout_of(kSizes);
  const auto gradients = gradients_of(layout);
  long double expected = 0;
  for (float value : gradients)
    expected += static_cast<long double>(value) * value;
  const double sum = square_sum(layout, gradients.data());
  EXPECT_NEAR(sum, static_cast<double>(expected), 1e-13 * static_cast<double>(expected));
  EXPECT_EQ(square_sum(layout, std::vector<float>(gradients.size(), 0.0F).data()), 0.0);
}

TEST(GradientNorm, bits_do_not_depend_on_threads_alignment_or_who_holds_a_block) {
  const FlatLayout layout = layout_of(kSizes);
  const auto gradients = gradients_of(layout);
  at::set_num_threads(1);
  const double expected = square_sum(layout, gradients.data());
  at::set_num_threads(2);
  EXPECT_EQ(square_sum(layout, gradients.data()), expected);
  at::set_num_threads(1);
  for (const std::size_t shift : {1U, 2U, 3U, 7U}) {
    std::vector<float> moved(shift, 0.0F);
    moved.insert(moved.end(), gradients.begin(), gradients.end());
    EXPECT_EQ(square_sum(layout, moved.data() + shift), expected);
  }
  std::vector<double> sums(layout.blocks.size());
  for (std::size_t first = 0; first < sums.size(); first += 2)
    block_square_sums(
        layout, gradients.data(), first,
        std::span(sums).subspan(first, std::min<std::size_t>(2, sums.size() - first)));
  EXPECT_EQ(combine_square_sums(sums), expected);
}

TEST(GradientNorm, large_gradients_do_not_overflow_and_broken_ones_show) {
  const FlatLayout layout = layout_of({100});
  std::vector<float> gradients(112, 0.0F);
  gradients[3] = 3e38F;
  EXPECT_NEAR(square_sum(layout, gradients.data()), 9e76, 1e70);
  gradients[50] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(square_sum(layout, gradients.data())));
  gradients[99] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(square_sum(layout, gradients.data())));
}

TEST(GradientNorm, clips_only_what_is_longer) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0), 1.0);
}

}  // namespace
}  // namespace teson::train
