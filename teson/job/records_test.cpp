#include "teson/job/records.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "teson/base/file.h"
#include "teson/job/test_folder.h"

namespace teson::job {
namespace {

using testing::HasSubstr;
using testing::Not;

StepRecord step(std::int64_t number, double loss) {
  StepRecord record;
  record.step = number;
  record.loss = loss;
  record.tokens = number * 1024;
  record.replicas = 2;
  return record;
}

void append(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST(Records, a_step_is_one_line_of_json) {
  StepRecord record = step(7, 5.25);
  record.epoch = std::numeric_limits<std::uint64_t>::max();
  record.learning_rate = 1e-3;
  EXPECT_EQ(
      to_json(record),
      R"({"step":7,"loss":5.25,"tokens":7168,"tokens_per_s":0.0,"learning_rate":0.001,"gradient_norm":0.0,"seconds":0.0,)"
      R"("replicas":2,"epoch":18446744073709551615,"skipped":false})");
  const auto again = parse_step_record(to_json(record));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->epoch, record.epoch);
}

TEST(Records, a_loss_that_is_not_finite_is_null_and_marked) {
  for (const double loss : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
    const std::string line = to_json(step(1, loss));
    EXPECT_THAT(line, HasSubstr(R"("loss":null,"non_finite":true)"));
    EXPECT_TRUE(std::isnan(parse_step_record(line)->loss));
  }
  EXPECT_THAT(to_json(step(1, 2)), Not(HasSubstr("non_finite")));
}

TEST(Records, an_event_leaves_out_what_is_not_set) {
  EventRecord event;
  event.kind = EventKind::failure;
  event.wall_ns = 1'796'017'152'345'678'901;  // 2026-11-30T05:39:12.345678901Z by date -u
  event.at = Instant(Duration(42));
  event.replica = 1;
  event.cause = "SIGKILL";
  event.detect_ms = 1.5;
  EXPECT_EQ(to_json(event),
            R"({"kind":"failure","time":")" + iso_time(event.wall_ns) +
                R"(","monotonic_ns":42,"replica":1,"cause":"SIGKILL","detect_ms":1.5})");
  const auto again = parse_event_record(to_json(event));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->kind, EventKind::failure);
  EXPECT_EQ(again->wall_ns, event.wall_ns / 1'000'000 * 1'000'000);
  EXPECT_EQ(again->at, event.at);
  EXPECT_EQ(again->step, std::nullopt);
  EXPECT_EQ(again->detect_ms, 1.5);
}

TEST(Records, times_are_iso_8601) {
  EXPECT_EQ(iso_time(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(iso_time(951'827'696'789'000'000),
            "2000-02-29T12:34:56.789Z");  // date -u -d @951827696
  EXPECT_EQ(iso_time(-1), "1969-12-31T23:59:59.999Z");
}

TEST(Records, a_cause_with_any_bytes_stays_valid_json) {
  EventRecord event;
  event.cause = "bad \xff\xfe\" \n \x01 " + std::string(100'000, 'x');
  const std::string line = to_json(event);
  EXPECT_LT(line.size(), 40'000u);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_TRUE(parse_event_record(line));
}

TEST(Records, every_kind_of_event_has_a_name_of_its_own) {
  for (int i = 0; i <= static_cast<int>(EventKind::finished); ++i) {
    EventRecord event;
    event.kind = static_cast<EventKind>(i);
    EXPECT_EQ(parse_event_record(to_json(event))->kind, event.kind);
  }
}

TEST(Records, every_cut_and_wrong_types_are_refused) {
  LedgerLine ledger{3, 4, {{0, 1, 8, 0x8000000000000001ULL}, {1, 0, 8, 2}}};
  for (const std::string& line : {to_json(step(1, 2)), to_json(EventRecord{}), to_json(ledger)}) {
    for (std::size_t length = 0; length < line.size(); ++length) {
      const std::string_view cut = std::string_view(line).substr(0, length);
      EXPECT_FALSE(parse_step_record(cut));
      EXPECT_FALSE(parse_event_record(cut));
      EXPECT_FALSE(parse_ledger_line(cut));
    }
  }
  EXPECT_EQ(parse_ledger_line(to_json(ledger)).value(), ledger);
  for (
      const char* bad :
      {"", "null", "[]", "3", "{}", R"({"step":-1})", R"({"step":1.5})",
       R"({"step":"1","epoch":1,"lanes":[]})", R"({"step":1,"epoch":1,"lanes":{}})",
       R"({"step":1,"epoch":-1,"lanes":[]})",
       R"({"step":99999999999999999999,"epoch":1,"lanes":[]})",
       R"({"step":1,"epoch":1,"lanes":[1]})",
       R"({"step":1,"epoch":1,"lanes":[{"lane":4294967296,"replica":0,"samples":1,"sample_hash":"0000000000000000"}]})",
       R"({"step":1,"epoch":1,"lanes":[{"lane":0,"replica":0,"samples":1,"sample_hash":"12"}]})"}) {
    EXPECT_FALSE(parse_ledger_line(bad)) << bad;
    EXPECT_FALSE(parse_step_record(bad)) << bad;
    EXPECT_FALSE(parse_event_record(bad)) << bad;
  }
  EXPECT_FALSE(parse_step_record(std::string(1 << 19, '[')));
}

TEST(RecordFile, a_later_line_of_the_same_step_counts) {
  const TestFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    auto writer = RecordWriter::open(path).value();
    for (int i = 1; i <= 5; ++i)
      ASSERT_TRUE(writer.write(step(i, i)));
    ASSERT_TRUE(writer.sync());
  }
  auto writer = RecordWriter::open(path).value();
  for (int i = 4; i <= 6; ++i)
    ASSERT_TRUE(writer.write(step(i, i * 10)));
  const auto records = read_step_records(path).value();
  ASSERT_EQ(records.size(), 6u);
  for (int i = 1; i <= 6; ++i) {
    EXPECT_EQ(records[i - 1].step, i);
    EXPECT_EQ(records[i - 1].loss, i < 4 ? i : i * 10);
  }
}

TEST(RecordFile, any_cut_of_the_last_line_is_read_over_and_mended) {
  const TestFolder folder;
  const std::string first = to_json(step(1, 1)) + "\n", second = to_json(step(2, 2));
  for (std::size_t length = 0; length <= second.size(); ++length) {
    const auto path = folder.path() / std::to_string(length);
    append(path, first + second.substr(0, length));
    const std::size_t whole = length == second.size() ? 2 : 1;
    EXPECT_EQ(read_step_records(path)->size(), whole);
    ASSERT_TRUE(RecordWriter::open(path)->write(step(3, 3)));
    const auto records = read_step_records(path);
    ASSERT_TRUE(records) << records.error().message;
    EXPECT_EQ(records->size(), whole + 1);
    EXPECT_EQ(records->back().step, 3);
  }
}

TEST(RecordFile, garbage_without_an_end_is_cut_off) {
  const TestFolder folder;
  const auto path = folder.path() / "x";
  append(path, to_json(step(1, 1)) + "\n" + std::string(3 << 20, 'g'));
  ASSERT_TRUE(RecordWriter::open(path)->write(step(2, 2)));
  EXPECT_EQ(read_step_records(path)->size(), 2u);
  const auto zeros = folder.path() / "zeros";
  append(zeros, std::string(200'000, '\0'));
  ASSERT_TRUE(RecordWriter::open(zeros)->write(step(2, 2)));
  EXPECT_EQ(read_step_records(zeros)->size(), 1u);
}

TEST(RecordFile, a_bad_line_in_the_middle_is_named) {
  const TestFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  append(path, to_json(step(1, 1)) + "\nrubbish\n" + to_json(step(2, 1)) + "\n");
  EXPECT_THAT(read_step_records(path).error().message, HasSubstr("metrics.jsonl:2"));
  append(folder.path() / "long", std::string(kRecordLineBytesMax + 1, 'x') + "\n");
  EXPECT_THAT(read_step_records(folder.path() / "long").error().message, HasSubstr("longer than"));
}

TEST(RecordFile, missing_files_hold_nothing_and_folders_are_refused) {
  const TestFolder folder;
  EXPECT_EQ(read_event_records(folder.path() / "none")->size(), 0u);
  EXPECT_FALSE(read_event_records(folder.path()));
  EXPECT_FALSE(RecordWriter::open(folder.path()));
  EXPECT_FALSE(RecordWriter::open("/dev/null"));
  EXPECT_FALSE(RecordWriter::open(folder.path() / "none" / "x"));
}

TEST(RecordFile, a_line_that_the_disk_cannot_hold_is_written_when_there_is_room) {
  const TestFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  auto writer = RecordWriter::open(path).value();
  ASSERT_TRUE(writer.write(step(1, 1)));
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tight = {std::filesystem::file_size(path) + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto refused = writer.write(step(2, 2));
  const auto meanwhile = read_step_records(path);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(refused);
  EXPECT_EQ(writer.missing(), 1);
  ASSERT_TRUE(meanwhile) << meanwhile.error().message;
  EXPECT_EQ(meanwhile->size(), 1u);
  ASSERT_TRUE(writer.write(step(3, 3)));
  EXPECT_EQ(writer.missing(), 0);
  const auto records = read_step_records(path);
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ(records->back().step, 3);
}

TEST(RecordFile, a_record_that_is_too_long_is_not_written) {
  const TestFolder folder;
  auto writer = RecordWriter::open(folder.path() / "x").value();
  EXPECT_FALSE(writer.write_line(std::string(kRecordLineBytesMax, 'x')));
  EXPECT_TRUE(writer.write(step(1, 1)));
  EXPECT_EQ(read_step_records(folder.path() / "x")->size(), 1u);
}

}  // namespace
}  // namespace teson::job
