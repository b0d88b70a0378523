#include "teson/quorum/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::quorum {
namespace {

EpochRecord a_record() {
  EpochRecord record;
  record.job = "job";
  record.epoch = make_epoch(2, 3);
  record.members.resize(2);
  record.members[1].id = {7, 1, 0};
  record.members[1].lanes_held = {1, 2, 3};
  record.members[1].tiles_final = {255, 1};
  return record;
}

std::vector<ToLighthouse> messages_up() {
  Hello hello;
  hello.job = "job";
  Status status;
  status.vote = Vote{.epoch = 1, .step = 2};
  status.lanes_held = {4};
  return {hello,
          Beat{1, true, 2, Phase::compute, 3},
          status,
          PeerLost{1, 2, "x"},
          Mismatch{1, 2, {3}},
          Leave{true, "y"},
          Observe{},
          ReportDead{1, Cause::process_ended, 2, "z"}};
}

std::vector<FromLighthouse> messages_down() {
  Event event;
  event.kind = EventKind::started;
  event.members = {{1, 2, 0}};
  return {Welcome{1, 2, 3, 4},
          Refused{"a", "b", "c", "d"},
          Fence{1, "why", {{1, 2, 0}}, a_record()},
          Start{a_record()},
          Pulse{1},
          event,
          RecordNews{a_record()}};
}

TEST(Protocol, every_message_survives_the_wire) {
  for (const ToLighthouse& message : messages_up()) {
    const Packed packed = pack(message);
    const auto back = unpack_to_lighthouse(packed.kind, packed.payload);
    ASSERT_TRUE(back) << back.error().describe();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(pack(*back).payload, packed.payload);
  }
  for (const FromLighthouse& message : messages_down()) {
    const Packed packed = pack(message);
    const auto back = unpack_from_lighthouse(packed.kind, packed.payload);
    ASSERT_TRUE(back) << back.error().describe();
    EXPECT_EQ(pack(*back).payload, packed.payload);
  }
  EXPECT_EQ(
      std::get<Start>(*unpack_from_lighthouse(3, pack(FromLighthouse(Start{a_record()})).payload))
          .record,
      a_record());
}

TEST(Protocol, every_truncation_and_every_unknown_kind_is_refused) {
  for (const ToLighthouse& message : messages_up()) {
    const Packed packed = pack(message);
    for (std::size_t size = 0; size < packed.payload.size(); ++size) {
      EXPECT_FALSE(
          unpack_to_lighthouse(packed.kind, std::string_view(packed.payload).substr(0, size)));
    }
    EXPECT_FALSE(unpack_to_lighthouse(packed.kind, packed.payload + "x"));
  }
  for (const FromLighthouse& message : messages_down()) {
    const Packed packed = pack(message);
    for (std::size_t size = 0; size < packed.payload.size(); ++size) {
      EXPECT_FALSE(
          unpack_from_lighthouse(packed.kind, std::string_view(packed.payload).substr(0, size)));
    }
  }
  EXPECT_EQ(unpack_to_lighthouse(99, "").error().kind, ErrorKind::invalid);
  EXPECT_EQ(unpack_from_lighthouse(65535, "").error().kind, ErrorKind::invalid);
}

TEST(Protocol, garbage_never_harms_and_garbage_records_are_caught) {
  CounterRandom random({5});
  for (int i = 0; i < 20000; ++i) {
    const auto messages = messages_down();
    Packed packed = pack(messages[random.below(messages.size())]);
    for (std::uint64_t flips = 1 + random.below(4); flips > 0 && !packed.payload.empty(); --flips) {
      packed.payload[random.below(packed.payload.size())] = static_cast<char>(random.next());
    }
    const auto back = unpack_from_lighthouse(packed.kind, packed.payload);
    if (!back) continue;
    if (const auto* start = std::get_if<Start>(&*back)) (void)check_record(start->record);
  }
}

TEST(Protocol, records_that_would_break_the_deal_are_refused) {
  EpochRecord good = a_record();
  good.lanes_total = 4;
  good.replicas_expected = 2;
  good.members[0].id = {6, 0, 0};
  good.members[0].lanes = good.members[1].lanes = 2;
  ASSERT_TRUE(check_record(good)) << check_record(good).error().message;
  const auto is_refused = [&](auto change) {
    EpochRecord bad = good;
    change(bad);
    return !check_record(bad);
  };
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.lanes_total = 0; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.lanes_total = 1 << 30; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members[0].lanes = 1; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members[0].lanes = -2, r.members[1].lanes = 6; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members[0].lanes_held = {1}; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members[0].lanes_held = {4}; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members[0].id.instance = 7; }));
  EXPECT_TRUE(
      is_refused([](EpochRecord& r) { r.members[0].learner = r.members[1].learner = true; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.members.clear(); }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.parent = r.epoch; }));
  EXPECT_TRUE(is_refused([](EpochRecord& r) { r.replicas_expected = 0; }));
}

}  // namespace
}  // namespace teson::quorum
