#include "teson/job/run_folder.h"

#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/base/random.h"
#include "teson/job/socket_folder.h"

namespace teson::job {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kSecretDigits = 64;
constexpr int kPreviousMax = 10'000;
constexpr std::size_t kPathBytesMax = 4096;
constexpr const char* kAdminSocket = "admin";

std::string name_of(const fs::path& path) {
  return path.filename().string();
}

bool is_previous(const fs::path& path) {
  return name_of(path).rfind("previous-", 0) == 0;
}

/// The names that stay in the folder when a run starts anew.
bool stays(const RunPaths& paths, const fs::path& entry) {
  return entry == paths.lock() || is_previous(entry);
}

Result<std::vector<fs::path>> entries_of(const fs::path& dir) {
  std::error_code code;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(dir, code), end; !code && entry != end; entry.increment(code)) {
    entries.push_back(entry->path());
  }
  if (code) return fail_errno(fmt::format("list folder '{}'", dir.string()), code.value());
  return entries;
}

Result<void> move_aside(const RunPaths& paths) {
  TESON_TRY(const std::vector<fs::path> entries, entries_of(paths.dir));
  std::vector<fs::path> old;
  for (const fs::path& entry : entries) {
    if (!stays(paths, entry)) old.push_back(entry);
  }
  if (old.empty()) return {};
  for (int number = 1; number <= kPreviousMax; ++number) {
    const fs::path target = paths.dir / fmt::format("previous-{}", number);
    if (::mkdir(target.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno(fmt::format("make folder '{}'", target.string()), errno);
    }
    for (const fs::path& entry : old) {
      if (std::rename(entry.c_str(), (target / entry.filename()).c_str()) != 0) {
        return fail_errno(fmt::format("move '{}' into '{}'", entry.string(), target.string()),
                          errno);
      }
    }
    return sync_folder(paths.dir);
  }
  return fail(ErrorKind::overloaded,
              fmt::format("'{}' already holds {} earlier runs (previous-N); delete some of them",
                          paths.dir.string(), kPreviousMax));
}

Result<void> check_same_run(const RunPaths& paths, const Config& config) {
  const std::string ways =
      "; name another folder (--run-dir), or move the old run aside with --start-anew";
  const Result<Config> old = load_config(paths.config());
  if (!old) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' cannot be read, so the run in its folder cannot go on{}:\n{}",
                            paths.config().string(), ways, old.error().message));
  }
  const std::vector<ConfigDifference> differences = config_difference(*old, config);
  if (differences.empty()) return {};
  std::string text;
  for (const ConfigDifference& each : differences) {
    text += fmt::format("\n  {}: {} in the folder, {} now", each.key, each.left, each.right);
  }
  return fail(ErrorKind::invalid,
              fmt::format("'{}' belongs to a run with another configuration{}:{}",
                          paths.dir.string(), ways, text));
}

Result<void> check_space(const fs::path& dir, std::uint64_t bytes_free_min) {
  struct statvfs info{};
  if (::statvfs(dir.c_str(), &info) != 0)
    return fail_errno(fmt::format("look at '{}'", dir.string()), errno);
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (free >= bytes_free_min) return {};
  return fail(
      ErrorKind::failed,
      fmt::format("'{}' is on a disk with {} bytes left; expected at least {}: free some space, "
                  "or choose another folder with --run-dir",
                  dir.string(), free, bytes_free_min));
}

bool is_secret(std::string_view text) {
  return text.size() == kSecretDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<std::string> make_secret(const fs::path& path, const std::string& given) {
  if (auto kept = read_secret(path); kept && (given.empty() || *kept == given)) return kept;
  std::string secret = given;
  for (int i = 0; i < 4 && given.empty(); ++i)
    secret += fmt::format("{:016x}", entropy64());
  const fs::path temporary = path.string() + ".new";
  ::unlink(temporary.c_str());
  {
    TESON_TRY(const Fd file, open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
    TESON_TRY_VOID(write_all(file.get(), secret, temporary));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return fail_errno(fmt::format("rename '{}' to '{}'", temporary.string(), path.string()), errno);
  }
  return secret;
}

}  // namespace

bool has_begun(const RunPaths& paths) {
  std::error_code code;
  const bool has_steps = fs::file_size(paths.metrics(), code) > 0 && !code;
  return has_steps || (fs::exists(paths.checkpoints(), code) &&
                       !fs::is_empty(paths.checkpoints(), code) && !code);
}

fs::path RunFolder::admin_socket() const {
  return socket_folder() / kAdminSocket;
}

std::optional<fs::path> admin_socket(const RunPaths& paths) {
  const auto folder = read_file(paths.sockets_file(), kPathBytesMax);
  if (!folder) return std::nullopt;
  return OwnedSocketFolder{*folder, {}}.sockets() / kAdminSocket;
}

fs::path RunPaths::worker_log(int replica) const {
  return logs() / fmt::format("worker-{}.log", replica);
}

Result<std::string> read_secret(const fs::path& path) {
  TESON_TRY(const Fd file, open_file(path, O_RDONLY));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0)
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  if ((info.st_mode & 077) != 0) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' may be read by others (mode {:o}); expected mode 600",
                            path.string(), info.st_mode & 0777));
  }
  TESON_TRY(std::string secret, read_file(path, kSecretDigits));
  if (!is_secret(secret)) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': expected {} hexadecimal digits", path.string(), kSecretDigits));
  }
  return secret;
}

RunFolder::SocketFolder::SocketFolder(SocketFolder&& other) noexcept
    : folder{std::exchange(other.folder.path, {}), std::move(other.folder.lock)} {}

RunFolder::SocketFolder::~SocketFolder() {
  if (!folder.path.empty()) remove_socket_folder(folder.path);
}

RunFolder::~RunFolder() {
  if (!sockets_.folder.path.empty()) ::unlink(paths_.sockets_file().c_str());
}

bool RunFolder::is_in_place() const {
  struct stat held{}, there{};
  if (::fstat(dir_.get(), &held) != 0) return true;
  if (::stat(paths_.dir.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

Result<void> RunFolder::lock_folder() {
  TESON_TRY(lock_, open_file(paths_.lock(), O_RDWR | O_CREAT));
  TESON_TRY(dir_, open_file(paths_.dir, O_RDONLY | O_DIRECTORY));
  // The file can be removed under a living run; the folder cannot be locked on some network file
  // systems.
  if (::flock(dir_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return in_use();
  int locked = -1;
  do {
    locked = ::flock(lock_.get(), LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) return in_use();
  if (locked != 0) return fail_errno(fmt::format("lock '{}'", paths_.lock().string()), errno);
  if (::ftruncate(lock_.get(), 0) != 0)
    return fail_errno(fmt::format("write '{}'", paths_.lock().string()), errno);
  return write_all(lock_.get(), fmt::format("{}\n", ::getpid()), paths_.lock());
}

Failure RunFolder::in_use() const {
  char pid[32] = {};
  const ssize_t got = ::pread(lock_.get(), pid, sizeof pid - 1, 0);
  const std::string_view shown(pid, got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string_view digits = shown.substr(0, shown.find_first_not_of("0123456789"));
  return fail(ErrorKind::overloaded,
              fmt::format("'{}' is in use by a living run, pid {}; stop that one first, or name "
                          "another folder (--run-dir)",
                          paths_.dir.string(), digits.empty() ? "unknown" : digits));
}

Result<void> RunFolder::settle(const Config& config, const RunFolderOptions& options) {
  std::error_code code;
  if (options.start_anew) TESON_TRY_VOID(move_aside(paths_));
  if (fs::exists(paths_.config(), code)) {
    const auto same = check_same_run(paths_, config);
    existed_ = same.has_value();
    // A run that was refused before its first step, for its corpus perhaps, binds nobody.
    if (!same && has_begun(paths_)) return same;
    if (!same) fs::remove_all(paths_.faults(), code);
  }
  TESON_TRY_VOID(check_space(paths_.dir, options.bytes_free_min));
  for (const fs::path& folder : {paths_.checkpoints(), paths_.logs(), paths_.faults()}) {
    TESON_TRY_VOID(make_folders(folder));
  }
  TESON_TRY(secret_, make_secret(paths_.secret(), options.secret));
  return write_file_atomic(paths_.config(), to_toml(config));
}

Result<void> RunFolder::make_sockets(const fs::path& base) {
  if (const auto old = read_file(paths_.sockets_file(), kPathBytesMax))
    remove_stale_socket_folder(*old);
  TESON_TRY(const fs::path chosen, socket_base(base));
  remove_stale_socket_folders(chosen);
  TESON_TRY(auto made, make_socket_folder(chosen));
  sockets_.folder = std::move(made);
  return write_file_atomic(paths_.sockets_file(), sockets_.folder.path.string());
}

Result<RunFolder> RunFolder::open(const fs::path& dir, const Config& config,
                                  const RunFolderOptions& options) {
  if (!options.secret.empty() && !is_secret(options.secret)) {
    return fail(ErrorKind::invalid,
                fmt::format("the run's secret: expected {} hexadecimal digits, as `openssl rand "
                            "-hex {}` prints them, found a text of {} bytes",
                            kSecretDigits, kSecretDigits / 2, options.secret.size()));
  }
  TESON_TRY_VOID(make_folders(dir));
  std::error_code code;
  RunFolder folder;
  folder.paths_.dir = fs::absolute(dir, code);
  if (code) return fail_errno(fmt::format("find folder '{}'", dir.string()), code.value());
  // Looked at before anything is written, so that a wrong folder stays as it is.
  TESON_TRY(const std::vector<fs::path> entries, entries_of(folder.paths_.dir));
  bool foreign = false, ours = false;
  for (const fs::path& entry : entries) {
    ours = ours || entry == folder.paths_.config() || entry == folder.paths_.lock();
    foreign = foreign || !stays(folder.paths_, entry);
  }
  if (foreign && !ours) {
    return fail(
        ErrorKind::invalid,
        fmt::format("'{}' is not empty and not the folder of a run; name another one (--run-dir)",
                    folder.paths_.dir.string()));
  }
  TESON_TRY_VOID(folder.lock_folder());
  TESON_TRY_VOID(folder.settle(config, options));
  TESON_TRY_VOID(folder.make_sockets(options.socket_base));
  return folder;
}

}  // namespace teson::job
