#include "teson/quorum/record_store.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/base/random.h"

namespace teson::quorum {
namespace {

namespace fs = std::filesystem;

class RecordStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("teson-record-" + std::to_string(entropy64()));
    fs::create_directories(folder_);
    path_ = folder_ / "record";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static EpochRecord record_of(std::uint32_t counter, std::int64_t parent) {
    EpochRecord record;
    record.job = "job";
    record.incarnation = 1;
    record.epoch = make_epoch(1, counter);
    record.parent = parent;
    record.lanes_total = 2;
    record.replicas_expected = 2;
    record.base_step = counter;
    for (int i = 0; i < 2; ++i) {
      Member member;
      member.id = {static_cast<std::uint64_t>(10 + i), i, 0};
      member.data_address = "unix:/tmp/x";
      member.lanes = 1;
      member.tiles_final = {1, 2, 3};
      record.members.push_back(member);
    }
    return record;
  }

  std::string bytes() const { return *read_file(path_); }
  void set_bytes(const std::string& data) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << data;
  }

  fs::path folder_;
  fs::path path_;
};

TEST_F(RecordStoreTest, record_and_term_survive_a_restart) {
  const EpochRecord first = record_of(1, 0);
  {
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store) << store.error().describe();
    EXPECT_FALSE(store->record());
    EXPECT_EQ(store->begin_term().value(), 1U);
    ASSERT_TRUE(store->swap(first));
    EXPECT_EQ(*store->record(), first);
  }
  auto store = RecordStore::open(path_);
  ASSERT_TRUE(store);
  EXPECT_EQ(*store->record(), first);
  EXPECT_EQ(store->begin_term().value(), 2U);
  EXPECT_EQ(*store->record(), first) << "a new term keeps the record";
}

TEST_F(RecordStoreTest, swap_refuses_another_parent_and_an_older_epoch) {
  auto store = RecordStore::open(path_);
  ASSERT_TRUE(store->swap(record_of(2, 0)));
  EXPECT_EQ(store->swap(record_of(3, 0)).error().kind, ErrorKind::aborted);
  EXPECT_EQ(store->swap(record_of(1, make_epoch(1, 2))).error().kind, ErrorKind::aborted);
  ASSERT_TRUE(store->swap(record_of(3, make_epoch(1, 2))));
  EXPECT_EQ(store->record()->epoch, make_epoch(1, 3));
}

TEST_F(RecordStoreTest, second_lighthouse_on_the_same_file_is_refused) {
  auto store = RecordStore::open(path_);
  ASSERT_TRUE(store);
  auto second = RecordStore::open(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::failed);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos) << second.error().message;
}

TEST_F(RecordStoreTest, replaced_file_stops_the_old_lighthouse) {
  auto store = RecordStore::open(path_);
  fs::remove(path_);
  auto second = RecordStore::open(path_);
  ASSERT_TRUE(second);
  EXPECT_EQ(store->swap(record_of(1, 0)).error().kind, ErrorKind::aborted);
}

/// Two records, the second only in the newer slot: as after a crash right behind the write.
std::size_t used_bytes(const std::string& all, std::size_t slot) {
  const std::string one = all.substr(slot * RecordStore::slot_bytes, RecordStore::slot_bytes);
  return one.find_last_not_of('\0') + 1;
}

TEST_F(RecordStoreTest, any_flipped_byte_of_a_slot_leaves_the_other_slot_s_record) {
  {
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store->swap(record_of(1, 0)));
    ASSERT_TRUE(store->swap(record_of(2, make_epoch(1, 1))));
  }
  const std::string good = bytes();
  int found[3] = {0, 0, 0};
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const std::size_t used = used_bytes(good, slot);
    ASSERT_GT(used, 100U);
    for (std::size_t at = 0; at < used; ++at) {
      const auto offset = static_cast<off_t>(slot * RecordStore::slot_bytes + at);
      const Fd file = *open_file(path_, O_RDWR);
      const char flipped = static_cast<char>(good[static_cast<std::size_t>(offset)] ^ 0x10);
      ASSERT_EQ(::pwrite(file.get(), &flipped, 1, offset), 1);
      auto store = RecordStore::open(path_);
      ASSERT_TRUE(store) << "slot " << slot << " byte " << at;
      ++found[store->record() ? store->record()->base_step : 0];
      ASSERT_EQ(::pwrite(file.get(), &good[static_cast<std::size_t>(offset)], 1, offset), 1);
    }
  }
  EXPECT_EQ(found[0], 0);
  EXPECT_GT(found[1], 100) << "newer slot damaged";
  EXPECT_GT(found[2], 100) << "older slot damaged";
}

TEST_F(RecordStoreTest, any_flipped_byte_costs_nothing_once_mirrored) {
  {
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store->swap(record_of(1, 0)));
    ASSERT_TRUE(store->mirror());
  }
  const std::string good = bytes();
  for (std::size_t slot = 0; slot < 2; ++slot) {
    for (std::size_t at = 0; at < used_bytes(good, slot); at += 3) {
      std::string bad = good;
      bad[slot * RecordStore::slot_bytes + at] =
          static_cast<char>(bad[slot * RecordStore::slot_bytes + at] ^ 1);
      set_bytes(bad);
      auto store = RecordStore::open(path_);
      ASSERT_TRUE(store);
      EXPECT_EQ(store->record()->base_step, 1);
      at += 16;
    }
  }
}

TEST_F(RecordStoreTest, truncated_files_keep_the_whole_slot_and_work_again) {
  {
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store->swap(record_of(1, 0)));
    ASSERT_TRUE(store->mirror());
  }
  const std::string good = bytes();
  for (const std::size_t size : {RecordStore::slot_bytes * 2 - 1, RecordStore::slot_bytes + 50,
                                 RecordStore::slot_bytes, RecordStore::slot_bytes / 2}) {
    set_bytes(good.substr(0, size));
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store) << size << ": " << store.error().describe();
    EXPECT_EQ(store->record()->base_step, 1);
    EXPECT_TRUE(store->swap(record_of(2, make_epoch(1, 1))));
    EXPECT_TRUE(store->mirror());
    EXPECT_EQ(bytes().size(), 2 * RecordStore::slot_bytes);
  }
}

TEST_F(RecordStoreTest, foreign_and_empty_files_are_refused_with_advice) {
  for (const std::string& content : {std::string(), std::string("hello"), std::string(3 << 20, 'x'),
                                     std::string(2 << 20, '\0')}) {
    set_bytes(content);
    auto store = RecordStore::open(path_);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().kind, ErrorKind::invalid);
    EXPECT_NE(store.error().message.find("remove it"), std::string::npos);
  }
}

TEST_F(RecordStoreTest, record_that_is_too_large_goes_without_its_final_tiles) {
  auto store = RecordStore::open(path_);
  EpochRecord large = record_of(1, 0);
  large.members[0].tiles_final.assign(RecordStore::slot_bytes, 255);
  ASSERT_TRUE(store->swap(large));
  EXPECT_TRUE(store->record()->members[0].tiles_final.empty());
  EpochRecord too_large = record_of(2, make_epoch(1, 1));
  too_large.members[0].data_address.assign(RecordStore::slot_bytes, 'x');
  EXPECT_EQ(store->swap(too_large).error().kind, ErrorKind::overloaded);
  EXPECT_EQ(store->record()->epoch, make_epoch(1, 1));
}

TEST_F(RecordStoreTest, writer_killed_at_any_moment_leaves_a_whole_record) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = RecordStore::open(path_);
      if (!store) ::_exit(1);
      while (true) {
        const std::int64_t parent = store->record() ? store->record()->epoch : 0;
        EpochRecord next = record_of(1, parent);
        next.epoch = parent + 1;
        if (!store->swap(next) || !store->mirror()) ::_exit(2);
      }
    }
    ::usleep(2000 + 731 * static_cast<unsigned>(round));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself with " << WEXITSTATUS(status);
    auto store = RecordStore::open(path_);
    ASSERT_TRUE(store) << store.error().describe();
    if (store->record()) {
      EXPECT_EQ(store->record()->parent + 1, store->record()->epoch);
    }
  }
}

}  // namespace
}  // namespace teson::quorum
