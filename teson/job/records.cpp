#include "teson/job/records.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/file.h"

namespace teson::job {
namespace {

constexpr std::size_t kBlockBytes = 1 << 16;

/// The length of the file up to and with its last newline.
Result<off_t> end_of_last_line(int fd, off_t size, const std::filesystem::path& path) {
  std::string block;
  for (off_t end = size; end > 0;) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(kBlockBytes));
    block.resize(static_cast<std::size_t>(end - begin));
    const ssize_t got = ::pread(fd, block.data(), block.size(), begin);
    if (got != static_cast<ssize_t>(block.size()))
      return fail_errno(fmt::format("read '{}'", path.string()), errno);
    const std::size_t newline = block.rfind('\n');
    if (newline != std::string::npos) return begin + static_cast<off_t>(newline) + 1;
    end = begin;
  }
  return 0;
}

bool is_record(std::string_view line) {
  return parse_step_record(line) || parse_event_record(line) || parse_ledger_line(line);
}

/// What a crash may have left after the last newline: completed if it is a whole record, else cut
/// off.
Result<void> mend_end(int fd, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  TESON_TRY(const off_t end, end_of_last_line(fd, info.st_size, path));
  const off_t rest = info.st_size - end;
  if (rest == 0) return {};
  if (rest <= static_cast<off_t>(kRecordLineBytesMax)) {
    std::string last(static_cast<std::size_t>(rest), '\0');
    if (::pread(fd, last.data(), last.size(), end) == rest && is_record(last)) {
      return write_all(fd, "\n", path);
    }
  }
  if (::ftruncate(fd, end) != 0)
    return fail_errno(fmt::format("cut the last line of '{}'", path.string()), errno);
  return {};
}

/// Calls `take(line)` for each whole line; a last one without newline is left out unless it can be
/// parsed.
template <typename Take>
Result<void> for_each_line(const std::filesystem::path& path, const Take& take) {
  std::error_code code;
  if (!std::filesystem::exists(path, code) && !code) return {};
  TESON_TRY(const Fd file, open_file(path, O_RDONLY));
  std::vector<char> block(kBlockBytes);
  std::string text;  // from the beginning of line `number`
  for (std::int64_t number = 1;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(fmt::format("read '{}'", path.string()), errno);
    if (got == 0) {
      if (!text.empty()) (void)take(std::string_view(text));
      return {};
    }
    const std::size_t searched = text.size();
    text.append(block.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n', searched);; end = text.find('\n', begin)) {
      const std::size_t length = std::min(end, text.size()) - begin;
      const auto place = [&] { return fmt::format("{}:{}", path.string(), number); };
      if (length > kRecordLineBytesMax) {
        return fail(ErrorKind::invalid, fmt::format("{}: the line is longer than {} bytes", place(),
                                                    kRecordLineBytesMax));
      }
      if (end == std::string::npos) break;
      const Result<void> taken = take(std::string_view(text).substr(begin, length));
      if (!taken) return fail(taken.error().in(place()));
      begin = end + 1;
      ++number;
    }
    text.erase(0, begin);
  }
}

template <typename Record, typename Parse>
Result<std::vector<Record>> read_by_step(const std::filesystem::path& path, const Parse& parse) {
  std::map<std::int64_t, Record> by_step;
  TESON_TRY_VOID(for_each_line(path, [&](std::string_view line) -> Result<void> {
    TESON_TRY(Record record, parse(line));
    const std::int64_t step = record.step;
    by_step.insert_or_assign(step, std::move(record));
    return {};
  }));
  std::vector<Record> records;
  records.reserve(by_step.size());
  for (auto& [step, record] : by_step)
    records.push_back(std::move(record));
  return records;
}

}  // namespace

Result<RecordWriter> RecordWriter::open(const std::filesystem::path& path) {
  TESON_TRY(Fd fd, open_file(path, O_RDWR | O_CREAT | O_APPEND));
  TESON_TRY_VOID(mend_end(fd.get(), path));
  return RecordWriter(std::move(fd), path);
}

Result<void> RecordWriter::write_line(std::string line) {
  if (line.size() >= kRecordLineBytesMax) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': a record of {} bytes is longer than the {} allowed",
                            path_.string(), line.size(), kRecordLineBytesMax));
  }
  line += '\n';
  if (unwritten_.size() + line.size() > kUnwrittenBytesMax) {
    ++lost_;
  } else {
    unwritten_ += line;
    ++kept_;
  }
  return flush();
}

Result<void> RecordWriter::flush() {
  if (unwritten_.empty()) return {};
  const off_t before = ::lseek(fd_.get(), 0, SEEK_END);
  Result<void> written = write_all(fd_.get(), unwritten_, path_);
  // A full disk may have taken half of it; what comes later must not be glued to that.
  if (!written && before >= 0 && ::ftruncate(fd_.get(), before) != 0) {
    return fail_errno(fmt::format("cut '{}' back to whole lines", path_.string()), errno);
  }
  if (!written) return written;
  unwritten_.clear();
  kept_ = 0;
  return {};
}

Result<void> RecordWriter::sync() {
  TESON_TRY_VOID(flush());
  if (::fdatasync(fd_.get()) != 0)
    return fail_errno(fmt::format("fdatasync '{}'", path_.string()), errno);
  return {};
}

Result<std::vector<StepRecord>> read_step_records(const std::filesystem::path& path) {
  return read_by_step<StepRecord>(path, parse_step_record);
}

Result<std::vector<LedgerLine>> read_ledger(const std::filesystem::path& path) {
  return read_by_step<LedgerLine>(path, parse_ledger_line);
}

Result<std::vector<EventRecord>> read_event_records(const std::filesystem::path& path) {
  std::vector<EventRecord> records;
  TESON_TRY_VOID(for_each_line(path, [&](std::string_view line) -> Result<void> {
    TESON_TRY(EventRecord record, parse_event_record(line));
    records.push_back(std::move(record));
    return {};
  }));
  return records;
}

}  // namespace teson::job
