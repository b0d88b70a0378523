#include "teson/actor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace teson::actor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  EXPECT_EQ(Shape{}.describe(), "no dimensions");
}

TEST(Shape, names_what_there_is_when_asked_for_something_else) {
  const Shape shape{{"replica", 3}};
  EXPECT_NE(shape.coordinate(0, "host").error().message.find("replica=3"), std::string::npos);
  EXPECT_FALSE(shape.slice("replica", 3));
}

TEST(Shape, is_made_from_named_sizes_up_to_the_most_ranks) {
  EXPECT_EQ(Shape::make({{"replica", 3}, {"shard", 2}}), (Shape{{"replica", 3}, {"shard", 2}}));
  EXPECT_EQ(Shape::make({}), Shape{});
  // 65535 · 65537 = 2^32 - 1
  EXPECT_EQ(Shape::make({{"host", 65535}, {"gpu", 65537}}).value().ranks(), 4294967295U);
}

TEST(Shape, is_refused_with_what_is_wrong) {
  const auto refused = [](std::vector<Dimension> dimensions) {
    const auto shape = Shape::make(std::move(dimensions));
    EXPECT_FALSE(shape);
    if (shape) return std::string();
    EXPECT_EQ(shape.error().kind, ErrorKind::invalid);
    return shape.error().message;
  };
  EXPECT_THAT(refused({{"host", 2}, {"", 3}}),
              AllOf(HasSubstr("(host=2, =3)"), HasSubstr("no name")));
  EXPECT_THAT(refused({{"host", 2}, {"gpu", 8}, {"host", 3}}),
              AllOf(HasSubstr("'host'"), HasSubstr("twice")));
  EXPECT_THAT(refused({{"host", 2}, {"gpu", 0}}), AllOf(HasSubstr("'gpu'"), HasSubstr("size 0")));
  EXPECT_THAT(refused({{"host", 65536}, {"gpu", 65536}}),
              AllOf(HasSubstr("'gpu'"), HasSubstr("more than 4294967295 ranks")));
  EXPECT_THAT(refused({{"host", ~std::uint64_t{0}}, {"gpu", ~std::uint64_t{0}}}),
              HasSubstr("more than 4294967295 ranks"));
  std::vector<Dimension> many;
  for (int i = 0; i < 33; ++i)
    many.push_back({"d" + std::to_string(i), 1});
  EXPECT_THAT(refused(many), AllOf(HasSubstr("33 dimensions"), HasSubstr("at most 32")));
  many.pop_back();
  EXPECT_TRUE(Shape::make(many));
}

}  // namespace
}  // namespace teson::actor
