#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::job {

/// One line of metrics.jsonl: a committed step, skipped ones included.
struct StepRecord {
  std::int64_t step = 0;  ///< 1 is the first
  double loss = 0;  ///< mean per token. NaN or infinite: null in the file, with "non_finite": true;
                    ///< read back as NaN
  std::int64_t tokens = 0;  ///< trained on so far, this step included
  double tokens_per_s = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  double seconds = 0;        ///< of this step
  int replicas = 0;          ///< that committed it
  std::uint64_t epoch = 0;
  bool skipped = false;  ///< committed without an update, for a non-finite gradient
};

/// What each says, and with which fields: docs/formats/run_folder.md.
enum class EventKind : std::uint8_t {
  started,
  resumed,
  failure,
  epoch,
  recovered,
  rejoin,
  checkpoint,
  evaluation,
  injected,
  refused,
  warning,
  finished,
};

/// One line of events.jsonl. Fields that are not set are left out of the line.
struct EventRecord {
  EventKind kind = EventKind::warning;
  std::int64_t wall_ns = 0;  ///< since 1970; "time" in the file, ISO 8601, UTC, milliseconds
  Instant at{};              ///< "monotonic_ns"
  std::optional<int> replica;
  std::optional<std::int64_t> step;
  std::optional<std::uint64_t> epoch;
  std::string cause;  ///< "SIGKILL", "exit code 3", "hang", "stop", the text of an exception; or
                      ///< what the event says
  std::optional<double> detect_ms, fence_ms, reconfigure_ms, commit_ms,
      rejoin_ms;               ///< see FailureLedger
  std::optional<double> loss;  ///< of an evaluation
};

/// Who computed a lane of a committed step, from which samples.
struct LaneEntry {
  int lane = 0;
  int replica = 0;
  std::int64_t samples = 0;
  std::uint64_t sample_hash =
      0;  ///< 16 hexadecimal digits in the file, since JSON numbers lose bits
  bool operator==(const LaneEntry&) const = default;
};

/// One line of ledger.jsonl: all lanes of one committed step.
struct LedgerLine {
  std::int64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<LaneEntry> lanes;
  bool operator==(const LedgerLine&) const = default;
};

std::string_view to_string(EventKind kind);

/// One line of JSON, without the newline. Always valid JSON: bytes that are no UTF-8 are replaced,
/// NaN becomes null.
std::string to_json(const StepRecord& record);
std::string to_json(const EventRecord& record);
std::string to_json(const LedgerLine& line);

/// From one line. `invalid`, naming the field, for anything else than what to_json writes; unknown
/// fields are ignored.
Result<StepRecord> parse_step_record(std::string_view line);
Result<EventRecord> parse_event_record(std::string_view line);
Result<LedgerLine> parse_ledger_line(std::string_view line);

/// "2026-11-30T05:39:12.345Z"
std::string iso_time(std::int64_t wall_ns);

inline constexpr std::size_t kRecordLineBytesMax = 8 << 20;  ///< a ledger line of 65,536 lanes

inline constexpr std::size_t kUnwrittenBytesMax = 32 << 20;

/// Appends lines to one file. A line is one write(2), so a reader sees whole lines; a crash may
/// leave a cut last line, which open mends: completed if it is a whole record, else cut off. A line
/// that cannot be written (a full disk) is kept and tried again before the next one, up to
/// kUnwrittenBytesMax of them. Move-only; one thread at a time.
class RecordWriter {
 public:
  static Result<RecordWriter> open(const std::filesystem::path& path);
  Result<void> write(const StepRecord& record) { return write_line(to_json(record)); }
  Result<void> write(const EventRecord& record) { return write_line(to_json(record)); }
  Result<void> write(const LedgerLine& line) { return write_line(to_json(line)); }
  /// A whole JSON text, without newline.
  Result<void> write_line(std::string line);
  /// Makes what was written durable, kept lines too.
  Result<void> sync();
  /// Lines that are not in the file: kept ones, and those there was no room to keep.
  std::int64_t missing() const { return kept_ + lost_; }

 private:
  RecordWriter(Fd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Result<void> flush();
  Fd fd_;
  std::filesystem::path path_;
  std::string unwritten_;  ///< whole lines
  std::int64_t kept_ = 0;  ///< of those
  std::int64_t lost_ = 0;
};

/// Records in the order of their steps; where a step occurs more than once (it was computed again
/// after a resume) the last line counts. A cut last line is left out; any other bad line is
/// `invalid`, with its number. A missing file holds no records.
Result<std::vector<StepRecord>> read_step_records(const std::filesystem::path& path);
Result<std::vector<LedgerLine>> read_ledger(const std::filesystem::path& path);
/// Events in the order of the file.
Result<std::vector<EventRecord>> read_event_records(const std::filesystem::path& path);

}  // namespace teson::job
