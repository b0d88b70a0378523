#include "teson/checkpoint/async_writer.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "teson/checkpoint/testing.h"

namespace teson {
namespace {

using testing::HookedDisk;
using testing::names_in;
using testing::small_options;
using testing::SmallState;
using testing::TemporaryFolder;

class AsyncWriterTest : public ::testing::Test {
 protected:
  /// The next write stops at its third change until `gate` is opened.
  void hold() {
    disk.before = [this](int number) {
      if (number == 3) {
        reached.set_value();
        gate.get_future().wait();
      }
      return 0;
    };
  }

  TemporaryFolder folder;
  HookedDisk disk;
  std::promise<void> reached, gate;
  CheckpointStore store{folder.path(), disk, small_options()};
};

TEST_F(AsyncWriterTest, writes_the_state_as_it_was_at_start) {
  hold();
  AsyncCheckpointWriter writer(store, 2);
  SmallState state(5);
  const auto before = state.weights;
  ASSERT_TRUE(writer.start(state.meta, state.sections()));
  reached.get_future().wait();
  state.weights.assign(state.weights.size(), -1.0f);
  gate.set_value();
  ASSERT_TRUE(writer.wait());
  ASSERT_TRUE(writer.last());
  ASSERT_TRUE(writer.last()->written) << writer.last()->written.error().describe();
  const auto found = store.newest_complete();
  ASSERT_TRUE(found && found->checkpoint);
  EXPECT_EQ(*found->checkpoint->read_floats("weights"), before);
}

TEST_F(AsyncWriterTest, a_second_start_while_busy_is_told_so_and_a_wait_can_end) {
  hold();
  AsyncCheckpointWriter writer(store, 2);
  const SmallState state(5), next(6);
  ASSERT_TRUE(writer.start(state.meta, state.sections()));
  reached.get_future().wait();
  EXPECT_TRUE(writer.busy());
  const auto second = writer.start(next.meta, next.sections());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::overloaded);
  const auto waited = writer.wait(std::chrono::milliseconds(5));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().kind, ErrorKind::timed_out);
  gate.set_value();
  ASSERT_TRUE(writer.wait());
  EXPECT_FALSE(writer.busy());
  EXPECT_TRUE(writer.start(next.meta, next.sections()));
  ASSERT_TRUE(writer.wait());
  EXPECT_EQ(writer.last()->id, (CheckpointId{1, 6}));
}

TEST_F(AsyncWriterTest, cancel_ends_the_write_and_leaves_nothing) {
  hold();
  AsyncCheckpointWriter writer(store, 2);
  const SmallState state(5);
  ASSERT_TRUE(writer.start(state.meta, state.sections()));
  reached.get_future().wait();
  writer.cancel();
  gate.set_value();
  ASSERT_TRUE(writer.wait());
  ASSERT_FALSE(writer.last()->written);
  EXPECT_EQ(writer.last()->written.error().kind, ErrorKind::aborted);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST_F(AsyncWriterTest, a_full_disk_reaches_the_callback_and_the_next_write_works) {
  std::vector<CheckpointOutcome> outcomes;
  AsyncCheckpointWriter writer(
      store, 1, [&](const CheckpointOutcome& outcome) { outcomes.push_back(outcome); });
  std::atomic<bool> full = true;
  disk.before = [&](int) { return full ? ENOSPC : 0; };
  for (const std::uint64_t step : {1, 2, 3}) {
    const SmallState state(step);
    ASSERT_TRUE(writer.start(state.meta, state.sections()));
    ASSERT_TRUE(writer.wait());
    full = false;
  }
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_FALSE(outcomes[0].written);
  EXPECT_TRUE(outcomes[1].written);
  EXPECT_TRUE(outcomes[2].written && outcomes[2].tidied);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{checkpoint_name({1, 3})}));
}

TEST_F(AsyncWriterTest, the_destructor_finishes_the_write_in_flight) {
  const SmallState state(5);
  {
    AsyncCheckpointWriter writer(store, 1);
    ASSERT_TRUE(writer.start(state.meta, state.sections()));
  }
  EXPECT_EQ(names_in(folder.path()).size(), 1u);
}

}  // namespace
}  // namespace teson
