#include "teson/train/lane_gradients.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::train {
namespace {

constexpr std::size_t kElements = 33;

float value_of(int lane, std::size_t i) {
  return static_cast<float>(CounterRandom({static_cast<std::uint64_t>(lane), i}).normal() *
                            std::pow(10.0, lane % 5));
}

// The definition, written once more: the sum of a node is its left half plus its right half; an
// empty half is skipped.
float tree_sum(int first, int width, int lanes, std::size_t i) {
  if (width == 1) return value_of(first, i);
  const float left = tree_sum(first, width / 2, lanes, i);
  if (first + width / 2 >= lanes) return left;
  return left + tree_sum(first + width / 2, width / 2, lanes, i);
}

void compute(LaneGradients& gradients, int lane) {
  float* buffer = gradients.begin_lane();
  for (std::size_t i = 0; i < kElements; ++i)
    buffer[i] += value_of(lane, i);
  gradients.finish_lane(lane);
}

TEST(LaneGradients, any_order_of_lanes_gives_the_bits_of_the_tree) {
  for (int lanes = 1; lanes <= 13; ++lanes) {
    int width = 1;
    while (width < lanes)
      width *= 2;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      std::vector<int> order(static_cast<std::size_t>(lanes));
      for (int lane = 0; lane < lanes; ++lane)
        order[static_cast<std::size_t>(lane)] = lane;
      CounterRandom random({seed, static_cast<std::uint64_t>(lanes)});
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random.below(i)]);
      LaneGradients gradients(kElements, lanes);
      for (const int lane : order)
        compute(gradients, lane);
      ASSERT_EQ(gradients.nodes(), std::vector{comm::root_of(lanes)});
      for (std::size_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(gradients.parts()[0][i], tree_sum(0, width, lanes, i))
            << lanes << " lanes, element " << i;
      }
    }
  }
}

TEST(LaneGradients, holds_what_was_finished_in_the_fewest_nodes) {
  LaneGradients gradients(kElements, 8);
  for (const int lane : {2, 3, 7})
    compute(gradients, lane);
  EXPECT_EQ(gradients.nodes(), comm::cover_of({2, 3, 7}, 8));
  for (int lane = 0; lane < 8; ++lane)
    EXPECT_EQ(gradients.holds(lane), lane == 2 || lane == 3 || lane == 7) << lane;
  gradients.clear();
  EXPECT_TRUE(gradients.nodes().empty());
}

TEST(LaneGradients, a_dropped_lane_leaves_no_trace) {
  LaneGradients gradients(kElements, 4);
  gradients.begin_lane()[0] = 5;
  gradients.drop_lane();
  compute(gradients, 1);
  EXPECT_EQ(gradients.parts()[0][0], value_of(1, 0));
}

}  // namespace
}  // namespace teson::train
