#include "teson/actor/shape.h"

#include <gtest/gtest.h>

namespace teson::actor {
namespace {

TEST(Shape, counts_ranks_row_by_row) {
  const Shape shape{{"replica", 3}, {"shard", 2}};
  EXPECT_EQ(shape.ranks(), 6U);
  std::size_t rank = 0;
  for (std::size_t replica = 0; replica < 3; ++replica) {
    for (std::size_t shard = 0; shard < 2; ++shard, ++rank) {
      EXPECT_EQ(shape.coordinates(rank), (std::vector<std::size_t>{replica, shard}));
      EXPECT_EQ(shape.coordinate(rank, "shard"), shard);
    }
  }
  EXPECT_EQ(shape.slice("shard", 1), (std::vector<std::size_t>{1, 3, 5}));
  EXPECT_EQ(shape.slice("replica", 1), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(shape.describe(), "replica=3, shard=2");
  EXPECT_EQ(Shape{}.ranks(), 1U);
}

TEST(Shape, names_what_there_is_when_asked_for_something_else) {
  const Shape shape{{"replica", 3}};
  EXPECT_NE(shape.coordinate(0, "host").error().message.find("replica=3"), std::string::npos);
  EXPECT_FALSE(shape.slice("replica", 3));
}

}  // namespace
}  // namespace teson::actor
