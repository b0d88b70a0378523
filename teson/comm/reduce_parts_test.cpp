#include <map>
#include <mutex>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "teson/comm/merge_plan.h"
#include "teson/comm/test_group.h"

namespace teson::comm {
namespace {

using test::rough_floats;
using test::same_bits;
using test::TestGroup;
using ::testing::HasSubstr;

/// A deal of lanes to ranks, its lanes' values, and the sum as the definition says: plainly
/// recursive over lane ranges.
struct Deal {
  int size = 1;
  int lanes = 1;
  std::size_t elements = 0;
  std::size_t tile_elements = 1;
  std::uint64_t seed = 0;
  std::vector<int> owner_of_lane;  ///< -1: nobody

  std::vector<float> lane(int number) const {
    return rough_floats(elements, {seed, static_cast<std::uint64_t>(number)});
  }

  /// Sum over [first, first + width), a power of two; nothing if no lane of it is held. Only lanes
  /// of `owner` if that is given.
  std::optional<std::vector<float>> sum(int first, int width,
                                        std::optional<int> owner = std::nullopt) const {
    if (first >= lanes) return std::nullopt;
    if (width == 1) {
      const int held_by = owner_of_lane[static_cast<std::size_t>(first)];
      if (held_by < 0 || (owner && held_by != *owner)) return std::nullopt;
      return lane(first);
    }
    auto left = sum(first, width / 2, owner);
    const auto right = sum(first + width / 2, width / 2, owner);
    if (!left) return right;
    if (!right) return left;
    for (std::size_t i = 0; i < elements; ++i)
      (*left)[i] = (*left)[i] + (*right)[i];
    return left;
  }
  int width() const {
    int width = 1;
    while (width < lanes)
      width *= 2;
    return width;
  }
  std::vector<int> lanes_of_rank(int rank) const {
    std::vector<int> held;
    for (int number = 0; number < lanes; ++number) {
      if (owner_of_lane[static_cast<std::size_t>(number)] == rank) held.push_back(number);
    }
    return held;
  }
  std::size_t tiles() const { return (elements + tile_elements - 1) / tile_elements; }
};

Deal random_deal(std::uint64_t seed) {
  CounterRandom random({seed, 77});
  Deal deal;
  deal.seed = seed;
  deal.size = 1 + static_cast<int>(random.below(4));
  deal.lanes = 1 + static_cast<int>(random.below(16));
  deal.elements = 1 + random.below(5000);
  deal.tile_elements = 1 + random.below(random.below(2) == 0 ? 300 : 6000);
  const bool absent_lanes = random.below(3) == 0;
  // Some ranks hold nothing.
  const auto holders = 1 + random.below(static_cast<std::uint64_t>(deal.size));
  for (int lane = 0; lane < deal.lanes; ++lane) {
    const bool absent = absent_lanes && random.below(3) == 0;
    deal.owner_of_lane.push_back(absent ? -1 : static_cast<int>(random.below(holders)));
  }
  deal.owner_of_lane[random.below(static_cast<std::uint64_t>(deal.lanes))] = 0;
  return deal;
}

/// What one rank gives to reduce_parts, and gets.
struct Member {
  ReduceParts parts;
  std::vector<std::vector<float>> buffers;
  std::vector<float> out;
  std::vector<std::uint64_t> digests;
  std::vector<int> final_calls;
};

std::uint64_t digest_of(const std::vector<float>& sum, std::size_t tile,
                        std::size_t tile_elements) {
  const std::size_t begin = tile * tile_elements;
  const std::size_t count = std::min(tile_elements, sum.size() - begin);
  return XXH3_64bits(sum.data() + begin, count * sizeof(float));
}

void fill(Member& member, const Deal& deal, int rank,
          const std::vector<std::vector<std::uint8_t>>& finals, const std::vector<float>& sum) {
  ReduceParts& parts = member.parts;
  parts.elements = deal.elements;
  parts.tile_elements = deal.tile_elements;
  parts.lanes = deal.lanes;
  for (int holder = 0; holder < deal.size; ++holder)
    parts.held.push_back(cover_of(deal.lanes_of_rank(holder), deal.lanes));
  for (const TreeNode node : parts.held[static_cast<std::size_t>(rank)]) {
    member.buffers.push_back(deal.sum(node.index << node.level, 1 << node.level, rank).value());
  }
  for (const auto& buffer : member.buffers)
    parts.own_parts.push_back(buffer.data());
  parts.finals = finals;
  member.out.assign(deal.elements, -1e30f);
  member.digests.assign(deal.tiles(), 0);
  member.final_calls.assign(deal.tiles(), 0);
  for (std::size_t tile = 0; tile < deal.tiles(); ++tile) {
    if (finals.empty() || finals[static_cast<std::size_t>(rank)][tile] == 0) continue;
    const std::size_t begin = tile * deal.tile_elements;
    const std::size_t count = std::min(deal.tile_elements, deal.elements - begin);
    std::copy_n(sum.begin() + static_cast<std::ptrdiff_t>(begin), count,
                member.out.begin() + static_cast<std::ptrdiff_t>(begin));
    member.digests[tile] = digest_of(sum, tile, deal.tile_elements);
  }
  parts.out = member.out.data();
  parts.tile_digests = member.digests.data();
  parts.on_final = [&member](std::size_t tile) { ++member.final_calls[tile]; };
}

void expect_reduced(TestGroup& group, const Deal& deal, std::uint64_t epoch,
                    const std::vector<std::vector<std::uint8_t>>& finals = {}) {
  const std::vector<float> sum = deal.sum(0, deal.width()).value();
  group.run(epoch, [&](Communicator& communicator) {
    Member member;
    const auto own = static_cast<std::size_t>(communicator.rank());
    fill(member, deal, communicator.rank(), finals, sum);
    const auto buffers = member.buffers;
    const auto result = communicator.reduce_parts(member.parts).wait();
    ASSERT_TRUE(result) << result.error().describe();
    EXPECT_TRUE(same_bits(member.out, sum));
    EXPECT_EQ(member.buffers, buffers);
    for (std::size_t tile = 0; tile < deal.tiles(); ++tile) {
      EXPECT_EQ(member.digests[tile], digest_of(sum, tile, deal.tile_elements));
      EXPECT_EQ(member.final_calls[tile], finals.empty() || finals[own][tile] == 0 ? 1 : 0);
    }
  });
}

TEST(ReduceParts, random_deals_give_the_sum_of_the_definition_to_the_last_bit) {
  std::map<int, TestGroup> groups;
  for (int size = 1; size <= 4; ++size)
    groups.try_emplace(size, size);
  for (std::uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Deal deal = random_deal(seed);
    expect_reduced(groups.at(deal.size), deal, seed);
  }
}

TEST(ReduceParts, tiles_that_are_final_somewhere_are_handed_on_not_summed_again) {
  std::map<int, TestGroup> groups;
  for (int size = 1; size <= 4; ++size)
    groups.try_emplace(size, size);
  for (std::uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Deal deal = random_deal(seed);
    CounterRandom random({seed, 78});
    std::vector<std::vector<std::uint8_t>> finals(static_cast<std::size_t>(deal.size));
    const std::uint64_t rarity = 1 + random.below(5);
    for (auto& of_rank : finals) {
      for (std::size_t tile = 0; tile < deal.tiles(); ++tile)
        of_rank.push_back(random.below(rarity) == 0);
    }
    expect_reduced(groups.at(deal.size), deal, seed, finals);
  }
}

TEST(ReduceParts, large_buffers_stream_through_bounded_staging) {
  for (const bool tcp : {false, true}) {
    TestGroup group(3, tcp);
    Deal deal;
    deal.size = 3;
    deal.lanes = 8;
    deal.owner_of_lane = {0, 0, 1, 1, 2, 2, 0, 1};
    deal.elements = 700003;
    deal.tile_elements = 1 << 14;
    deal.seed = 5;
    expect_reduced(group, deal, 1);
    deal.tile_elements = deal.elements;
    expect_reduced(group, deal, 2);
  }
}

TEST(ReduceParts, the_sum_does_not_depend_on_who_holds_what) {
  // The worked example: eight lanes among three ranks, then among the two that are left, then all
  // at one.
  TestGroup three(3);
  TestGroup two(2);
  TestGroup one(1);
  Deal deal;
  deal.lanes = 8;
  deal.elements = 1001;
  deal.tile_elements = 100;
  deal.seed = 3;
  deal.size = 3;
  deal.owner_of_lane = {0, 0, 1, 1, 2, 2, 0, 1};
  const auto sum = deal.sum(0, 8).value();
  expect_reduced(three, deal, 1);
  deal.size = 2;
  deal.owner_of_lane = {0, 0, 1, 1, 1, 1, 0, 0};
  EXPECT_TRUE(same_bits(sum, deal.sum(0, 8).value()));
  expect_reduced(two, deal, 1);
  deal.size = 1;
  deal.owner_of_lane.assign(8, 0);
  expect_reduced(one, deal, 1);
}

TEST(ReduceParts, nothing_to_add_is_done_at_once) {
  TestGroup group(2);
  group.run(1, [](Communicator& communicator) {
    ReduceParts parts;
    parts.lanes = 2;
    parts.held = {{{0, 0}}, {{0, 1}}};
    parts.own_parts = {nullptr};
    EXPECT_TRUE(communicator.reduce_parts(parts).wait());
  });
}

TEST(ReduceParts, descriptions_that_do_not_fit_are_refused_by_name) {
  TestGroup group(1);
  auto alone = group.connect(1);
  std::vector<float> buffer(10);
  std::vector<float> out(10);
  std::vector<std::uint64_t> digests(2);
  const auto error_of = [&](const std::function<void(ReduceParts&)>& change) {
    ReduceParts parts;
    parts.elements = 10;
    parts.tile_elements = 5;
    parts.lanes = 2;
    parts.held = {{{1, 0}}};
    parts.own_parts = {buffer.data()};
    parts.out = out.data();
    parts.tile_digests = digests.data();
    change(parts);
    const auto result = alone[0]->reduce_parts(parts).wait();
    return result ? std::string() : result.error().describe();
  };
  EXPECT_EQ(error_of([](ReduceParts&) {}), "");
  EXPECT_THAT(error_of([](ReduceParts& p) { p.held.emplace_back(); }),
              HasSubstr("held describes 2 ranks"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.own_parts.clear(); }),
              HasSubstr("own_parts has 0 buffers for 1"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.out = nullptr; }), HasSubstr("null"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.tile_elements = 0; }), HasSubstr("tile_elements"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.lanes = 0; }), HasSubstr("lanes"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.held = {{{2, 0}}}; }), HasSubstr("not in the tree"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.held = {{{0, 2}}}; }), HasSubstr("not in the tree"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.held = {{{-1, 0}}}; }), HasSubstr("not in the tree"));
  EXPECT_THAT(error_of([](ReduceParts& p) {
                p.held = {{}};
                p.own_parts.clear();
              }),
              HasSubstr("no rank holds"));
  EXPECT_THAT(error_of([](ReduceParts& p) {
                p.held = {{{1, 0}, {0, 1}}};
                p.own_parts.push_back(p.own_parts[0]);
              }),
              HasSubstr("held twice"));
  EXPECT_THAT(error_of([](ReduceParts& p) { p.finals = {{1}}; }),
              HasSubstr("finals[0] describes 1 tiles"));
}

TEST(MergePlan, vectors_and_single_elements_give_equal_bits) {
  // One element at a time no vector code can run.
  std::vector<std::vector<float>> lanes;
  std::vector<TreeNode> nodes;
  std::vector<const float*> terms;
  for (int lane = 0; lane < 13; ++lane) {
    nodes.push_back({0, lane});
    lanes.push_back(rough_floats(5003, {static_cast<std::uint64_t>(lane)}));
  }
  for (const auto& lane : lanes)
    terms.push_back(lane.data());
  const MergePlan plan = MergePlan::along_tree(nodes, 13).value();
  const std::atomic<bool> stop = false;
  std::vector<float> whole(5003);
  plan.run(terms, whole.data(), whole.size(), stop);
  std::vector<float> single(5003);
  for (std::size_t i = 0; i < single.size(); ++i) {
    std::vector<const float*> at;
    for (const auto& lane : lanes)
      at.push_back(lane.data() + i);
    plan.run(at, single.data() + i, 1, stop);
  }
  EXPECT_TRUE(same_bits(whole, single));
}

}  // namespace
}  // namespace teson::comm
