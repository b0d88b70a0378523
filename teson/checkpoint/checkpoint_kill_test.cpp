#include <csignal>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/checkpoint/checkpoint.h"
#include "teson/checkpoint/testing.h"

namespace teson {
namespace {

namespace fs = std::filesystem;
using testing::HookedDisk;
using testing::names_in;
using testing::small_options;
using testing::SmallState;
using testing::TemporaryFolder;

enum class Death { before, after, within };

/// Runs `body` in a process of its own. True if it came to its end, false if it was killed.
template <typename Body>
bool survives(Body body) {
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child < 0) return false;
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0)
      << status;
  return WIFEXITED(status);
}

void die_at(HookedDisk& disk, Death death, int number) {
  if (death == Death::before)
    disk.before = [=](int n) { return n == number ? ::raise(SIGKILL) : 0; };
  if (death == Death::after)
    disk.after = [=](int n) {
      if (n == number) ::raise(SIGKILL);
    };
  if (death == Death::within) disk.tear_at = number;
}

/// The newest complete checkpoint holds exactly the state of its step; returns the step.
std::uint64_t newest_verified(const fs::path& root) {
  HookedDisk disk;
  const auto found = CheckpointStore(root, disk).newest_complete();
  EXPECT_TRUE(found && found->checkpoint);
  if (!found || !found->checkpoint) return 0;
  EXPECT_TRUE(found->skipped.empty());
  const std::uint64_t step = found->checkpoint->meta().step;
  const auto weights = found->checkpoint->read_floats("weights");
  EXPECT_TRUE(weights && *weights == SmallState(step).weights);
  return step;
}

void next_run_cleans_and_goes_on(const fs::path& root, std::uint64_t step) {
  HookedDisk disk;
  const CheckpointStore store(root, disk, small_options());
  ASSERT_TRUE(store.clean_stale());
  for (const auto& name : names_in(root))
    ASSERT_NE(name[0], '.') << name;
  const SmallState state(step);
  ASSERT_TRUE(store.write(state.meta, state.sections()));
  ASSERT_EQ(newest_verified(root), step);
}

void write_two(const fs::path& root) {
  SystemDisk disk;
  for (const std::uint64_t step : {9800, 9900}) {
    const SmallState state(step);
    ASSERT_TRUE(CheckpointStore(root, disk, small_options()).write(state.meta, state.sections()));
  }
}

bool write_and_remove(const fs::path& root, Disk& disk) {
  const CheckpointStore store(root, disk, small_options());
  const SmallState state(10000);
  return store.write(state.meta, state.sections()) && store.remove_old(1);
}

class CheckpointKillTest : public ::testing::TestWithParam<Death> {};

TEST_P(CheckpointKillTest,
       killed_at_any_change_of_a_write_and_a_removal_the_old_or_the_new_one_is_whole) {
  const int changes = [] {
    const TemporaryFolder folder;
    write_two(folder.path());
    HookedDisk disk;
    EXPECT_TRUE(write_and_remove(folder.path(), disk));
    return disk.changes;
  }();
  int kills = 0;
  int found_new = 0;
  for (int number = 0; number < changes; ++number) {
    const TemporaryFolder folder;
    write_two(folder.path());
    const bool ended = survives([&] {
      HookedDisk disk;
      die_at(disk, GetParam(), number);
      if (!write_and_remove(folder.path(), disk)) ::_exit(1);
    });
    const std::uint64_t step = newest_verified(folder.path());
    ASSERT_TRUE(step == 9900 || step == 10000) << number;
    found_new += step == 10000;
    next_run_cleans_and_goes_on(folder.path(), 10100);
    kills += !ended;
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(GetParam() == Death::within ? kills > 10 : kills == changes)
      << kills << " of " << changes;
  EXPECT_GT(found_new, 5);
}

INSTANTIATE_TEST_SUITE_P(At, CheckpointKillTest,
                         ::testing::Values(Death::before, Death::after, Death::within));

TEST(CheckpointKill, killed_at_random_moments_the_newest_one_is_whole) {
  CounterRandom random({2026});
  const TemporaryFolder folder;
  std::uint64_t step = 1;
  {
    HookedDisk disk;
    const SmallState state(step);
    ASSERT_TRUE(
        CheckpointStore(folder.path(), disk, small_options()).write(state.meta, state.sections()));
  }
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      SystemDisk disk;
      const CheckpointStore store(folder.path(), disk, small_options());
      for (std::uint64_t next = step + 1;; ++next) {
        const SmallState state(next);
        if (!store.write(state.meta, state.sections()) || !store.remove_old(2)) ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(40'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": a write or a removal failed";
    const std::uint64_t newest = newest_verified(folder.path());
    ASSERT_GE(newest, step) << "round " << round;
    next_run_cleans_and_goes_on(folder.path(), newest + 1);
    step = newest + 1;
  }
}

}  // namespace
}  // namespace teson
