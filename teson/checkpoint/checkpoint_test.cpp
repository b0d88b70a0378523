#include "teson/checkpoint/checkpoint.h"

#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "teson/checkpoint/testing.h"

namespace teson {
namespace {

namespace fs = std::filesystem;
using testing::HookedDisk;
using testing::names_in;
using testing::slurp;
using testing::small_options;
using testing::SmallState;
using testing::spill;
using testing::TemporaryFolder;

class CheckpointTest : public ::testing::Test {
 protected:
  fs::path write(const SmallState& state) {
    const auto written = store.write(state.meta, state.sections());
    EXPECT_TRUE(written) << written.error().describe();
    return written.value_or(fs::path());
  }
  CheckpointId newest() {
    const auto found = store.newest_complete();
    EXPECT_TRUE(found && found->checkpoint);
    const auto& meta = found->checkpoint->meta();
    return {meta.incarnation, meta.step};
  }

  TemporaryFolder folder;
  HookedDisk disk;
  fs::path root = folder.path() / "checkpoints of a run ä";
  CheckpointStore store{root, disk, small_options()};
};

TEST_F(CheckpointTest, weights_come_back_in_every_bit) {
  SmallState state(7);
  const std::uint32_t odd[] = {0x7fc00001, 0xffffffff, 0x80000000, 0x00000001, 0x7f800000};
  std::memcpy(state.weights.data(), odd, sizeof odd);
  write(state);
  const auto found = store.newest_complete();
  ASSERT_TRUE(found && found->checkpoint);
  EXPECT_TRUE(found->skipped.empty());
  EXPECT_EQ(found->checkpoint->meta(), state.meta);
  const auto weights = found->checkpoint->read_floats("weights");
  const auto moments = found->checkpoint->read_floats("adam_m");
  ASSERT_TRUE(weights && moments);
  ASSERT_EQ(weights->size(), state.weights.size());
  EXPECT_EQ(std::memcmp(weights->data(), state.weights.data(), 280), 0);
  EXPECT_EQ(std::memcmp(moments->data(), state.moments.data(), 280), 0);
}

TEST_F(CheckpointTest, a_range_across_files_is_read_alone) {
  const SmallState state(7);
  write(state);
  const auto found = store.newest_complete();
  ASSERT_TRUE(found && found->checkpoint);
  float middle[20];
  ASSERT_TRUE(
      found->checkpoint->read("weights", 30 * 4, std::as_writable_bytes(std::span(middle))));
  EXPECT_EQ(std::memcmp(middle, state.weights.data() + 30, sizeof middle), 0);
}

TEST_F(CheckpointTest, steps_9900_and_10000_are_ordered_as_numbers_and_as_text) {
  for (const std::uint64_t step : {10000, 9900, 99})
    write(SmallState(step));
  EXPECT_EQ(newest(), (CheckpointId{1, 10000}));
  EXPECT_EQ(names_in(root), (std::vector<std::string>{"inc-000001-step-000000000099",
                                                      "inc-000001-step-000000009900",
                                                      "inc-000001-step-000000010000"}));
  EXPECT_EQ(parse_checkpoint_name("inc-1-step-9900"), (CheckpointId{1, 9900}));
  for (const char* other :
       {"inc-1-step-", "inc--step-1", "inc-1-step-1x", "inc-1-step--1", "step-1", "",
        "inc-1-step-99999999999999999999999", ".partial-inc-1-step-1"}) {
    EXPECT_FALSE(parse_checkpoint_name(other)) << other;
  }
}

TEST_F(CheckpointTest, a_higher_incarnation_is_newer_than_a_higher_step) {
  write(SmallState(5000, 1));
  write(SmallState(4000, 2));
  EXPECT_EQ(newest(), (CheckpointId{2, 4000}));
}

TEST_F(CheckpointTest, an_older_history_is_not_written_beside_a_newer_one) {
  SmallState state(7);
  state.meta.incarnation = 2;
  write(state);
  state.meta.incarnation = 1;
  state.meta.step = 9;
  const auto written = store.write(state.meta, state.sections());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::invalid);
  EXPECT_NE(written.error().message.find("newer history"), std::string::npos);
  EXPECT_EQ(names_in(root).size(), 1U);
}

TEST_F(CheckpointTest, any_damage_to_any_file_is_named_and_the_older_one_is_used) {
  write(SmallState(1));
  const fs::path victim = write(SmallState(2));
  for (const auto& entry : fs::directory_iterator(victim)) {
    const std::string whole = slurp(entry.path());
    const auto expect_skipped = [&](const std::string& what) {
      const auto found = store.newest_complete();
      ASSERT_TRUE(found && found->checkpoint) << what;
      ASSERT_EQ(found->checkpoint->meta().step, 1u) << what;
      ASSERT_EQ(found->skipped.size(), 1u);
      ASSERT_EQ(found->skipped[0].path, victim);
      ASSERT_NE(found->skipped[0].reason.find(entry.path().filename().string()), std::string::npos)
          << what << ": " << found->skipped[0].reason;
    };
    for (std::size_t at = 0; at < whole.size();
         at += at >= 128 && at < 4080 && whole.size() > 4096 ? 61 : 1) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
      spill(entry.path(), flipped);
      expect_skipped(fmt::format("byte {} flipped", at));
      if (at % 5 == 0) {
        spill(entry.path(), std::string_view(whole).substr(0, at));
        expect_skipped(fmt::format("cut to {}", at));
      }
      if (HasFatalFailure()) return;
    }
    fs::remove(entry.path());
    expect_skipped("removed");
    spill(entry.path(), whole);
  }
  EXPECT_EQ(newest(), (CheckpointId{1, 2}));
}

TEST_F(CheckpointTest, files_of_another_checkpoint_cannot_be_mixed_in) {
  const auto a = write(SmallState(1));
  const auto b = write(SmallState(2));
  fs::copy_file(a / "weights-00000.bin", b / "weights-00000.bin",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(newest(), (CheckpointId{1, 1}));
}

TEST_F(CheckpointTest, a_renamed_folder_is_skipped_but_opens_by_its_path) {
  write(SmallState(1));
  fs::rename(write(SmallState(2)), root / "inc-000001-step-000000000003");
  const auto found = store.newest_complete();
  ASSERT_TRUE(found && found->checkpoint);
  EXPECT_EQ(found->checkpoint->meta().step, 1u);
  EXPECT_NE(found->skipped.at(0).reason.find("renamed"), std::string::npos);
  EXPECT_TRUE(CheckpointReader::open(root / "inc-000001-step-000000000003"));
}

TEST_F(CheckpointTest, nothing_there_is_no_error_and_a_file_in_the_way_is) {
  const auto none = store.newest_complete();
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->checkpoint);
  EXPECT_TRUE(store.clean_stale());
  spill(root, "a file");
  EXPECT_FALSE(store.list());
  const SmallState state(1);
  EXPECT_FALSE(store.write(state.meta, state.sections()));
}

TEST_F(CheckpointTest, a_folder_that_cannot_be_made_is_a_clear_error) {
  const CheckpointStore nowhere("/proc/teson/checkpoints", disk);
  const SmallState state(1);
  const auto written = nowhere.write(state.meta, state.sections());
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/proc/teson"), std::string::npos);
}

TEST_F(CheckpointTest, reading_what_is_not_there_says_what_is) {
  write(SmallState(1));
  const auto found = store.newest_complete();
  ASSERT_TRUE(found && found->checkpoint);
  std::vector<float> other(71);
  const auto size = found->checkpoint->read_floats("weights", other);
  ASSERT_FALSE(size);
  EXPECT_NE(size.error().message.find("280 bytes, expected 284"), std::string::npos)
      << size.error().message;
  const auto section = found->checkpoint->read_floats("adam_v");
  ASSERT_FALSE(section);
  EXPECT_NE(section.error().message.find("weights, adam_m"), std::string::npos)
      << section.error().message;
  std::byte one[1];
  EXPECT_FALSE(found->checkpoint->read("weights", ~0ULL, one));
  EXPECT_FALSE(found->checkpoint->read("weights", 280, one));
}

TEST_F(CheckpointTest, a_state_that_contradicts_itself_is_refused_and_leaves_nothing) {
  SmallState state(1);
  state.meta.parameters[1].elements = 11;
  EXPECT_FALSE(store.write(state.meta, state.sections()));
  const SmallState fine(1);
  EXPECT_FALSE(store.write(
      fine.meta, std::vector{float_section("w", fine.weights), float_section("w", fine.weights)}));
  EXPECT_FALSE(store.write(fine.meta, std::vector{float_section("../w", fine.weights)}));
  EXPECT_FALSE(fs::exists(root));
}

TEST_F(CheckpointTest, too_little_room_is_said_before_anything_is_written) {
  disk.free = 1000;
  const SmallState state(1);
  const auto written = store.write(state.meta, state.sections());
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("no room"), std::string::npos) << written.error().message;
  EXPECT_EQ(disk.changes, 0);
}

TEST_F(CheckpointTest, a_fault_at_any_change_publishes_nothing_or_a_whole_one_and_leaves_no_rest) {
  write(SmallState(1));
  const SmallState state(2);
  int failures = 0;
  for (int fault = 0;; ++fault) {
    disk.changes = 0;
    disk.before = [&](int number) { return number == fault ? ENOSPC : 0; };
    const auto written = store.write(state.meta, state.sections());
    disk.before = [](int) { return 0; };
    const auto found = store.newest_complete();
    ASSERT_TRUE(found && found->checkpoint);
    ASSERT_TRUE(found->skipped.empty());
    for (const auto& name : names_in(root))
      ASSERT_NE(name[0], '.') << name << " after fault " << fault;
    if (written) break;
    ++failures;
    ASSERT_NE(written.error().message.find("No space"), std::string::npos)
        << written.error().message;
    const bool published = found->checkpoint->meta().step == 2;
    ASSERT_EQ(published, written.error().message.find("was published") != std::string::npos);
    fs::remove_all(root / checkpoint_name({1, 2}));
  }
  EXPECT_GT(failures, 20);
}

TEST_F(CheckpointTest, the_same_state_twice_is_written_once_and_another_history_is_refused) {
  const auto path = write(SmallState(3));
  EXPECT_EQ(write(SmallState(3)), path);
  SmallState other(3);
  other.meta.chain_hash = "ffff";
  const auto refused = store.write(other.meta, other.sections());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_EQ(names_in(root).size(), 1u);
}

TEST_F(CheckpointTest, a_damaged_one_in_the_way_is_set_aside) {
  const auto path = write(SmallState(3));
  for (const std::size_t kept : {1, 2}) {
    fs::resize_file(path / "adam_m-00001.bin", 4100);
    EXPECT_EQ(write(SmallState(3)), path);
    EXPECT_EQ(newest(), (CheckpointId{1, 3}));
    EXPECT_EQ(names_in(root).size(), 1u + kept);
    EXPECT_TRUE(fs::exists(root / ("damaged-" + checkpoint_name({1, 3})) / "manifest.json"));
  }
}

TEST_F(CheckpointTest, what_cannot_be_read_is_an_error_and_no_reason_to_take_an_older_one) {
  write(SmallState(1));
  write(SmallState(2));
  const auto path = write(SmallState(3));
  for (const char* name : {"manifest.json", "adam_m-00001.bin"}) {
    fs::rename(path / name, folder.path() / name);
    // The file is there, its disk is not.
    fs::create_symlink("/nowhere/at/all", path / name);
    const auto found = store.newest_complete();
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().kind, ErrorKind::failed);
    EXPECT_NE(found.error().message.find(name), std::string::npos) << found.error().message;
    EXPECT_FALSE(store.remove_old(1));
    const SmallState again(3);
    EXPECT_FALSE(store.write(again.meta, again.sections()));
    EXPECT_EQ(names_in(root).size(), 3u);
    fs::rename(folder.path() / name, path / name);
  }
  EXPECT_EQ(newest(), (CheckpointId{1, 3}));
}

TEST_F(CheckpointTest, all_damaged_is_not_the_same_as_none) {
  for (const std::uint64_t step : {1, 2})
    spill(write(SmallState(step)) / "manifest.json", "{");
  const auto found = store.newest_complete();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::invalid);
  EXPECT_NE(found.error().message.find("the newest of 2"), std::string::npos);
  EXPECT_NE(found.error().message.find(checkpoint_name({1, 2})), std::string::npos);
  EXPECT_EQ(names_in(root).size(), 2u);
}

TEST_F(CheckpointTest, damaged_ones_are_never_removed) {
  for (const std::uint64_t step : {1, 2, 3, 4})
    write(SmallState(step));
  fs::remove(root / checkpoint_name({1, 2}) / "manifest.json");
  EXPECT_EQ(store.set_aside(root / checkpoint_name({1, 3})),
            root / ("damaged-" + checkpoint_name({1, 3})));
  ASSERT_TRUE(store.remove_old(1));
  EXPECT_EQ(names_in(root),
            (std::vector<std::string>{"damaged-" + checkpoint_name({1, 3}), checkpoint_name({1, 2}),
                                      checkpoint_name({1, 4})}));
  EXPECT_EQ(newest(), (CheckpointId{1, 4}));
}

TEST_F(CheckpointTest, looking_for_the_newest_can_be_stopped) {
  write(SmallState(1));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(store.newest_complete(stop.get_token()).error().kind, ErrorKind::aborted);
}

TEST_F(CheckpointTest, old_ones_are_removed_and_the_newest_complete_one_never) {
  for (const std::uint64_t step : {1, 2, 3, 4, 5})
    write(SmallState(step));
  EXPECT_FALSE(store.remove_old(0));
  fs::remove(root / checkpoint_name({1, 5}) / "manifest.json");
  const auto removed = store.remove_old(2);
  ASSERT_TRUE(removed) << removed.error().describe();
  EXPECT_EQ(removed->size(), 2u);
  EXPECT_EQ(newest(), (CheckpointId{1, 4}));
  EXPECT_EQ(names_in(root),
            (std::vector<std::string>{checkpoint_name({1, 3}), checkpoint_name({1, 4}),
                                      checkpoint_name({1, 5})}));
}

TEST_F(CheckpointTest, a_flipped_byte_in_the_newest_saves_the_older_from_removal) {
  write(SmallState(1));
  const auto path = write(SmallState(2)) / "weights-00000.bin";
  std::string flipped = slurp(path);
  flipped[4096 + 3] ^= 1;
  spill(path, flipped);
  ASSERT_TRUE(store.remove_old(1));
  EXPECT_EQ(newest(), (CheckpointId{1, 1}));
}

TEST_F(CheckpointTest, cancelling_leaves_nothing) {
  std::stop_source stop;
  disk.after = [&](int number) {
    if (number == 4) stop.request_stop();
  };
  const SmallState state(1);
  const auto written = store.write(state.meta, state.sections(), stop.get_token());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::aborted);
  EXPECT_TRUE(names_in(root).empty());
}

TEST_F(CheckpointTest, a_living_writers_folder_is_not_cleaned) {
  std::size_t cleaned = 99;
  disk.after = [&](int number) {
    if (number != 5) return;
    SystemDisk plain;
    cleaned = CheckpointStore(root, plain).clean_stale()->size();
  };
  write(SmallState(1));
  EXPECT_EQ(cleaned, 0u);
  EXPECT_EQ(newest(), (CheckpointId{1, 1}));
}

TEST_F(CheckpointTest, leftovers_of_removals_are_cleaned_and_those_of_another_boot_only_when_old) {
  const fs::path removing = root / ".removing-00-inc-000001-step-000000000001";
  const fs::path foreign = root / ".partial-zzzzzzzz-00-inc-000001-step-000000000001";
  fs::create_directories(removing);
  fs::create_directories(foreign);
  spill(removing / "manifest.json", "x");
  EXPECT_EQ(store.clean_stale()->size(), 1u);
  EXPECT_EQ(names_in(root), (std::vector<std::string>{foreign.filename().string()}));
  fs::last_write_time(foreign, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(store.clean_stale()->size(), 1u);
  EXPECT_TRUE(names_in(root).empty());
}

}  // namespace
}  // namespace teson
