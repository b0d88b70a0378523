#include "teson/checkpoint/names.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"

namespace teson {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view incarnation_word = "inc-";
constexpr std::string_view step_word = "-step-";
constexpr int partial_attempts_max = 4;
/// A partial folder of another boot or host cannot be asked for its writer; after this long without
/// a change it has none.
constexpr auto foreign_partial_age = std::chrono::hours(1);

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Names this boot of this kernel: locks and processes of another one cannot be seen from here.
std::string boot_mark() {
  const auto id = read_file("/proc/sys/kernel/random/boot_id", 4096);
  return fmt::format("{:08x}",
                     static_cast<std::uint32_t>(hash64(id ? std::string_view(*id) : "unknown")));
}

bool changed_within(const fs::path& folder, std::chrono::seconds age) {
  std::error_code code;
  auto newest = fs::last_write_time(folder, code);
  if (code) return true;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    std::error_code gone;
    const auto time = fs::last_write_time(entry.path(), gone);
    if (!gone) newest = std::max(newest, time);
  }
  return fs::file_time_type::clock::now() - newest < age;
}

}  // namespace

std::string checkpoint_name(CheckpointId id) {
  return fmt::format("{}{:06}{}{:012}", incarnation_word, id.incarnation, step_word, id.step);
}

std::optional<CheckpointId> parse_checkpoint_name(std::string_view name) {
  if (!take(name, incarnation_word)) return {};
  const auto incarnation = take_number(name);
  if (!incarnation || !take(name, step_word)) return {};
  const auto step = take_number(name);
  if (!step || !name.empty()) return {};
  return CheckpointId{*incarnation, *step};
}

fs::path removing_name(const fs::path& path) {
  return path.parent_path() /
         fmt::format("{}{:016x}-{}", removing_prefix, entropy64(), path.filename().string());
}

Result<PartialFolder> make_partial(Disk& disk, const fs::path& root, CheckpointId id) {
  for (int attempt = 0; attempt < partial_attempts_max; ++attempt) {
    PartialFolder partial;
    partial.path = root / fmt::format("{}{}-{:016x}-{}", partial_prefix, boot_mark(), entropy64(),
                                      checkpoint_name(id));
    TESON_TRY_VOID(disk.make_folder(partial.path));
    // A cleaner may come between: then the folder is gone or locked, and another name is tried.
    auto lock = open_file(partial.path, O_RDONLY | O_DIRECTORY);
    if (!lock) continue;
    partial.lock = std::move(*lock);
    struct stat here{}, there{};
    const bool locked = ::flock(partial.lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && ::fstat(partial.lock.get(), &here) == 0 &&
        ::stat(partial.path.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
        here.st_dev == there.st_dev) {
      return partial;
    }
  }
  return fail(
      ErrorKind::failed,
      fmt::format("'{}': a new folder was taken away {} times before it could be locked; is "
                  "another program cleaning it?",
                  root.string(), partial_attempts_max));
}

bool is_abandoned(const fs::path& partial, Fd& lock) {
  auto folder = open_file(partial, O_RDONLY | O_DIRECTORY);
  if (!folder) return false;
  lock = std::move(*folder);
  const bool of_this_boot =
      partial.filename().string().starts_with(fmt::format("{}{}-", partial_prefix, boot_mark()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
    if (of_this_boot) return true;
  } else if (errno == EWOULDBLOCK) {
    return false;
  }
  return !changed_within(partial, foreign_partial_age);
}

Result<void> remove_tree(Disk& disk, const fs::path& path) {
  std::error_code code;
  if (fs::symlink_status(path, code).type() == fs::file_type::directory) {
    std::vector<fs::path> entries;
    for (fs::directory_iterator at(path, code), end; !code && at != end; at.increment(code)) {
      entries.push_back(at->path());
    }
    if (code && code != std::errc::no_such_file_or_directory) {
      return fail_errno(fmt::format("list '{}'", path.string()), code.value());
    }
    for (const auto& entry : entries)
      TESON_TRY_VOID(remove_tree(disk, entry));
  }
  return disk.remove(path);
}

}  // namespace teson
