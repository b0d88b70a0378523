#include "teson/actor/region.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/net/codec.h"

namespace teson::actor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Ranks = std::vector<std::size_t>;

constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

/// Base ranks 0 … 31: rank 8 h + g is GPU g of host h.
const Region& mesh() {
  static const Region region(Shape{{"host", 4}, {"gpu", 8}});
  return region;
}

template <typename T>
std::string refusal(const Result<T>& result) {
  EXPECT_FALSE(result);
  if (result) return {};
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  return result.error().message;
}

TEST(Region, of_a_shape_holds_every_rank_in_order) {
  const Region region(Shape{{"host", 2}, {"gpu", 3}});
  EXPECT_EQ(region.shape(), (Shape{{"host", 2}, {"gpu", 3}}));
  EXPECT_EQ(region.ranks(), 6U);
  EXPECT_EQ(region.ranks_list(), (Ranks{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(region.coordinates(4), (Ranks{1, 1}));
  EXPECT_EQ(region.coordinate(4, "host"), 1U);
  EXPECT_EQ(region.index({1, 1}), 4U);
  EXPECT_FALSE(region.contains(6));
}

TEST(Region, without_dimensions_is_one_rank) {
  EXPECT_EQ(Region(Shape{}), Region{});
  EXPECT_EQ(Region{}.ranks(), 1U);
  EXPECT_EQ(Region{}.ranks_list(), Ranks{0});
  EXPECT_EQ(Region{}.coordinates(0), Ranks{});
  EXPECT_EQ(Region{}.index({}), 0U);
  EXPECT_EQ(mesh().at("host", 3).value().at("gpu", 2).value().ranks_list(), Ranks{26});
}

TEST(Region, at_an_index_loses_the_dimension) {
  const auto host = mesh().at("host", 2).value();
  EXPECT_EQ(host.shape(), (Shape{{"gpu", 8}}));
  EXPECT_EQ(host.ranks_list(), (Ranks{16, 17, 18, 19, 20, 21, 22, 23}));
  const auto gpu = mesh().at("gpu", 3).value();
  EXPECT_EQ(gpu.shape(), (Shape{{"host", 4}}));
  EXPECT_EQ(gpu.ranks_list(), (Ranks{3, 11, 19, 27}));
}

TEST(Region, a_slice_keeps_the_dimension) {
  const auto hosts = mesh().slice("host", 1, 2).value();
  EXPECT_EQ(hosts.shape(), (Shape{{"host", 1}, {"gpu", 8}}));
  EXPECT_EQ(hosts.ranks_list(), (Ranks{8, 9, 10, 11, 12, 13, 14, 15}));
  const auto gpus = mesh().slice("gpu", 1, 8, 3).value();
  EXPECT_EQ(gpus.shape(), (Shape{{"host", 4}, {"gpu", 3}}));
  EXPECT_EQ(gpus.ranks_list(), (Ranks{1, 4, 7, 9, 12, 15, 17, 20, 23, 25, 28, 31}));
}

TEST(Region, slices_of_slices_count_in_their_own_coordinates) {
  const auto odd = mesh().slice("host", 1, 4, 2).value().slice("gpu", 0, 8, 2).value();
  EXPECT_EQ(odd.ranks_list(), (Ranks{8, 10, 12, 14, 24, 26, 28, 30}));
  EXPECT_EQ(odd.slice("gpu", 1, 4, 2).value().ranks_list(), (Ranks{10, 14, 26, 30}));
  EXPECT_EQ(odd.at("host", 1).value().ranks_list(), (Ranks{24, 26, 28, 30}));
  EXPECT_EQ(odd.rank_at(5), 26U);
  EXPECT_EQ(odd.index_of(26), 5U);
  EXPECT_EQ(odd.coordinates(5), (Ranks{1, 1}));
  EXPECT_EQ(odd.index_of(16), std::nullopt);
  EXPECT_EQ(odd.index_of(25), std::nullopt);
  EXPECT_EQ(odd.index_of(7), std::nullopt);
  EXPECT_EQ(odd.index_of(32), std::nullopt);
}

TEST(Region, a_step_past_the_end_leaves_one_element) {
  EXPECT_EQ(mesh().slice("host", 0, 4, huge), mesh().slice("host", 0, 1));
  EXPECT_EQ(mesh().slice("gpu", 5, 8, 3).value().ranks_list(), (Ranks{5, 13, 21, 29}));
}

TEST(Region, a_split_arranges_the_same_ranks_along_several_dimensions) {
  const auto grid = mesh().split("gpu", {{"pipeline", 2}, {"tensor", 4}}).value();
  EXPECT_EQ(grid.shape(), (Shape{{"host", 4}, {"pipeline", 2}, {"tensor", 4}}));
  EXPECT_EQ(grid.ranks_list(), mesh().ranks_list());
  // Rank 22 is GPU 6 of host 2: 6 = 1 · 4 + 2.
  EXPECT_EQ(grid.coordinates(22), (Ranks{2, 1, 2}));
  EXPECT_EQ(grid.at("tensor", 1).value().at("host", 1).value().ranks_list(), (Ranks{9, 13}));
}

TEST(Region, a_split_works_out_the_size_that_is_left_out) {
  EXPECT_EQ(mesh().split("gpu", {{"pipeline"}, {"tensor", 4}}).value().shape(),
            (Shape{{"host", 4}, {"pipeline", 2}, {"tensor", 4}}));
  EXPECT_EQ(mesh().split("host", {{"host", 4}, {"rail", 0}}).value().shape(),
            (Shape{{"host", 4}, {"rail", 1}, {"gpu", 8}}));
}

TEST(Region, a_split_of_a_slice_keeps_its_stride) {
  const auto even =
      mesh().slice("gpu", 0, 8, 2).value().split("gpu", {{"pair", 2}, {"side", 2}}).value();
  EXPECT_EQ(even.at("side", 1).value().at("host", 0).value().ranks_list(), (Ranks{2, 6}));
  EXPECT_EQ(even.at("pair", 1).value().at("host", 0).value().ranks_list(), (Ranks{4, 6}));
}

TEST(Region, flattens_where_its_ranks_are_evenly_spaced) {
  const auto flat = mesh().flatten("rank").value();
  EXPECT_EQ(flat, Region(Shape{{"rank", 32}}));
  EXPECT_EQ(mesh().slice("gpu", 0, 8, 4).value().flatten("rank").value().ranks_list(),
            (Ranks{0, 4, 8, 12, 16, 20, 24, 28}));
  const auto pair = mesh().slice("host", 2, 3).value().slice("gpu", 1, 3).value();
  EXPECT_EQ(pair.flatten("rank").value().ranks_list(), (Ranks{17, 18}));
  EXPECT_EQ(mesh().at("host", 1).value().at("gpu", 1).value().flatten("rank").value().shape(),
            (Shape{{"rank", 1}}));
  EXPECT_EQ(flat.split("rank", {{"host", 4}, {"gpu"}}), mesh());
}

TEST(Region, a_renamed_dimension_answers_to_its_new_name_only) {
  const auto renamed = mesh().rename("gpu", "device").value();
  EXPECT_EQ(renamed.shape(), (Shape{{"host", 4}, {"device", 8}}));
  EXPECT_EQ(renamed.at("device", 3).value().ranks_list(), (Ranks{3, 11, 19, 27}));
  EXPECT_FALSE(renamed.at("gpu", 3));
  EXPECT_EQ(renamed.rename("device", "gpu"), mesh());
  EXPECT_EQ(mesh().rename("gpu", "gpu"), mesh());
}

TEST(Region, equals_what_arranges_the_same_ranks_in_the_same_way) {
  EXPECT_EQ(mesh().slice("host", 1, 3).value().at("host", 1), mesh().at("host", 2));
  EXPECT_EQ(mesh().slice("gpu", 0, 8, 7).value().slice("gpu", 0, 1), mesh().slice("gpu", 0, 1));
  EXPECT_NE(mesh().at("host", 1), mesh().at("host", 2));
  EXPECT_NE(mesh().flatten("rank"), mesh());
}

TEST(Region, tells_what_it_is) {
  EXPECT_EQ(mesh().slice("gpu", 1, 8, 4).value().describe(),
            "host=4 every 8, gpu=2 every 4, from rank 1");
  EXPECT_EQ(mesh().slice("host", 3, 4).value().describe(), "host=1, gpu=8 every 1, from rank 24");
  EXPECT_EQ(mesh().at("host", 1).value().at("gpu", 1).value().describe(), "from rank 9");
}

TEST(Region, says_which_dimensions_there_are_when_asked_for_another) {
  const auto unknown = AllOf(HasSubstr("no dimension 'rack'"), HasSubstr("host=4, gpu=8"));
  EXPECT_THAT(refusal(mesh().at("rack", 0)), unknown);
  EXPECT_THAT(refusal(mesh().slice("rack", 0, 1)), unknown);
  EXPECT_THAT(refusal(mesh().split("rack", {{"a", 1}})), unknown);
  EXPECT_THAT(refusal(mesh().rename("rack", "row")), unknown);
  EXPECT_THAT(refusal(mesh().coordinate(0, "rack")), unknown);
  EXPECT_THAT(refusal(Region{}.at("rack", 0)), HasSubstr("no dimensions"));
}

TEST(Region, refuses_indices_outside_the_dimension) {
  for (const std::uint64_t index : {std::uint64_t{8}, huge}) {
    EXPECT_THAT(refusal(mesh().at("gpu", index)),
                AllOf(HasSubstr("index " + std::to_string(index)), HasSubstr("'gpu'"),
                      HasSubstr("host=4, gpu=8"), HasSubstr("below 8")));
    EXPECT_THAT(refusal(mesh().index({0, index})),
                AllOf(HasSubstr("coordinate " + std::to_string(index)), HasSubstr("'gpu'"),
                      HasSubstr("below 8")));
  }
  EXPECT_THAT(refusal(mesh().index({1})),
              AllOf(HasSubstr("1 coordinates"), HasSubstr("2 dimensions")));
  EXPECT_THAT(refusal(mesh().index({1, 1, 1})), HasSubstr("3 coordinates"));
}

TEST(Region, refuses_slices_that_are_empty_or_outside_or_do_not_advance) {
  const auto asked = AllOf(HasSubstr("slicing 'host'"), HasSubstr("host=4, gpu=8"));
  EXPECT_THAT(refusal(mesh().slice("host", 0, 4, 0)),
              AllOf(asked, HasSubstr("step must be at least 1")));
  EXPECT_THAT(refusal(mesh().slice("host", 0, 5)),
              AllOf(asked, HasSubstr("0 to 5"), HasSubstr("ends at 4")));
  EXPECT_THAT(refusal(mesh().slice("host", 2, 2)), AllOf(asked, HasSubstr("empty")));
  EXPECT_THAT(refusal(mesh().slice("host", 3, 1)), AllOf(asked, HasSubstr("empty")));
  EXPECT_THAT(refusal(mesh().slice("host", huge, huge)), AllOf(asked, HasSubstr("outside")));
}

TEST(Region, refuses_splits_into_another_number_of_ranks) {
  const auto asked = AllOf(HasSubstr("splitting 'gpu' into"), HasSubstr("host=4, gpu=8"));
  EXPECT_THAT(refusal(mesh().split("gpu", {})), AllOf(asked, HasSubstr("at least one part")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"a", 2}, {"b", 2}})),
              AllOf(asked, HasSubstr("multiply to 4, expected 8")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"a", 3}, {"b", 3}})),
              AllOf(asked, HasSubstr("more than the 8")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"a", huge}, {"b", huge}})),
              AllOf(asked, HasSubstr("more than the 8")));
  EXPECT_THAT(
      refusal(mesh().split("gpu", {{"a", 3}, {"b"}})),
      AllOf(asked, HasSubstr("a=3, b=?"), HasSubstr("8 is not a multiple of the sizes given (3)")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"a"}, {"b", 2}, {"c"}})),
              AllOf(asked, HasSubstr("both 'a' and 'c'")));
}

TEST(Region, refuses_names_that_are_empty_or_taken) {
  EXPECT_THAT(refusal(mesh().split("gpu", {{"host", 2}, {"b", 4}})),
              AllOf(HasSubstr("splitting 'gpu'"), HasSubstr("'host'"), HasSubstr("twice")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"a", 2}, {"a", 4}})),
              AllOf(HasSubstr("'a'"), HasSubstr("twice")));
  EXPECT_THAT(refusal(mesh().split("gpu", {{"", 2}, {"b", 4}})), HasSubstr("no name"));
  EXPECT_THAT(
      refusal(mesh().rename("gpu", "host")),
      AllOf(HasSubstr("renaming 'gpu' to 'host'"), HasSubstr("host=4, gpu=8"), HasSubstr("twice")));
  EXPECT_THAT(refusal(mesh().rename("gpu", "")),
              AllOf(HasSubstr("renaming 'gpu'"), HasSubstr("no name")));
  EXPECT_THAT(refusal(mesh().flatten("")), AllOf(HasSubstr("flattening"), HasSubstr("no name")));
}

TEST(Region, refuses_to_flatten_ranks_that_are_not_evenly_spaced) {
  EXPECT_THAT(
      refusal(mesh().slice("gpu", 0, 3).value().flatten("rank")),
      AllOf(HasSubstr("flattening"), HasSubstr("to 'rank'"), HasSubstr("gpu=3 every 1"),
            HasSubstr("not evenly spaced"), HasSubstr("a step along 'host' is 8, expected 3")));
}

TEST(Region, refuses_more_dimensions_than_there_may_be) {
  std::vector<Dimension> parts(32, {"", 1});
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i].name = "d" + std::to_string(i);
  parts[0].size = 8;
  EXPECT_THAT(refusal(mesh().split("gpu", parts)),
              HasSubstr("33 dimensions in a mesh, at most 32"));
  parts.pop_back();
  EXPECT_EQ(mesh().split("gpu", parts).value().flatten("rank"), mesh().flatten("rank"));
  EXPECT_THAT(refusal(mesh().split("gpu", std::vector<Dimension>(1000, {"d", 1}))),
              HasSubstr("into 1000 parts"));
}

TEST(Region, reaches_to_the_last_rank_a_mesh_may_have) {
  // 65535 · 65537 = 2^32 - 1 ranks.
  const Region largest(Shape{{"host", 65535}, {"gpu", 65537}});
  EXPECT_EQ(largest.ranks(), 4294967295U);
  EXPECT_EQ(largest.rank_at(4294967294), 4294967294U);
  EXPECT_EQ(largest.coordinates(4294967294), (Ranks{65534, 65536}));
  EXPECT_EQ(largest.index_of(4294967294), 4294967294U);
  EXPECT_EQ(largest.index_of(4294967295), std::nullopt);
  EXPECT_EQ(largest.index_of(huge), std::nullopt);
  EXPECT_EQ(
      largest.flatten("rank").value().slice("rank", 4294967293, 4294967295).value().ranks_list(),
      (Ranks{4294967293, 4294967294}));
}

TEST(Region, travels_as_its_layout) {
  const auto slice = mesh().slice("host", 1, 4, 2).value().slice("gpu", 3, 4).value();
  const auto arrived = net::decode<RegionLayout>(net::encode(slice.layout()));
  ASSERT_TRUE(arrived);
  EXPECT_EQ(Region::make(*arrived), slice);
  EXPECT_EQ(slice.layout(), (RegionLayout{11, {{"host", 2, 16}, {"gpu", 1, 0}}}));
  // A stride that steps over nothing makes no difference.
  EXPECT_EQ(Region::make({11, {{"host", 2, 16}, {"gpu", 1, huge}}}), slice);
}

TEST(Region, refuses_layouts_that_are_no_region) {
  EXPECT_THAT(refusal(Region::make({0, {{"host", 0, 1}}})), HasSubstr("size 0"));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 2, 2}, {"host", 2, 1}}})), HasSubstr("twice"));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 2, 0}}})),
              AllOf(HasSubstr("'host'"), HasSubstr("stride 0")));
  // Two elements with one rank; ranks that do not ascend.
  EXPECT_THAT(refusal(Region::make({0, {{"host", 4, 2}, {"gpu", 3, 1}}})),
              AllOf(HasSubstr("'host'"), HasSubstr("stride 2"), HasSubstr("span 3 ranks")));
  EXPECT_THAT(refusal(Region::make({0, {{"gpu", 8, 1}, {"host", 4, 8}}})),
              AllOf(HasSubstr("'gpu'"), HasSubstr("span 25 ranks")));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 2, huge}}})),
              AllOf(HasSubstr("'host'"), HasSubstr("past rank 4294967294")));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 3, 1ULL << 31}}})),
              HasSubstr("past rank 4294967294"));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 2, 4294967290}, {"gpu", 8, 1}}})),
              HasSubstr("past rank 4294967294"));
  EXPECT_THAT(refusal(Region::make({0, {{"host", 2, 4294967288}, {"gpu", 8, 1}}})),
              HasSubstr("past rank 4294967294"));
  EXPECT_THAT(refusal(Region::make({1, {{"host", 2, 4294967287}, {"gpu", 8, 1}}})),
              HasSubstr("past rank 4294967294"));
  EXPECT_EQ(Region::make({0, {{"host", 2, 4294967287}, {"gpu", 8, 1}}}).value().rank_at(15),
            4294967294U);
  EXPECT_THAT(refusal(Region::make({4294967295, {}})), HasSubstr("past rank 4294967294"));
  EXPECT_THAT(refusal(Region::make({huge, {{"host", 2, 1}}})), HasSubstr("past rank 4294967294"));
  EXPECT_TRUE(Region::make({4294967294, {}}));
}

}  // namespace
}  // namespace teson::actor
