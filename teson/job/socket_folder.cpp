#include "teson/job/socket_folder.h"

#include <cstdlib>
#include <ctime>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/file.h"

namespace teson::job {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "teson-";
constexpr std::size_t kNameBytes = kPrefix.size() + 6;
constexpr int kEntriesMax = 1000;
/// Younger ones without s/ may just be made: it comes after the lock.
constexpr int kUnfinishedAgeMin_s = 60;

bool is_folder_of_ours(const fs::path& path, struct stat& info) {
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace

Result<fs::path> socket_base(const fs::path& wanted) {
  if (!wanted.empty()) {
    if (wanted.string().size() <= kSocketBaseBytesMax) return wanted;
    return fail(
        ErrorKind::invalid,
        fmt::format("the folder for sockets '{}' is longer than {} bytes; a unix socket's address "
                    "would not hold a path in it",
                    wanted.string(), kSocketBaseBytesMax));
  }
  struct stat info{};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR");
      runtime != nullptr && runtime[0] == '/') {
    const std::string_view path = runtime;
    if (path.size() <= kSocketBaseBytesMax && is_folder_of_ours(path, info) &&
        ::access(runtime, W_OK | X_OK) == 0) {
      return fs::path(path);
    }
  }
  return fs::path("/tmp");
}

namespace {

Result<void> make_inner(const fs::path& path) {
  struct stat there{};
  if (::mkdir((path / "s").c_str(), 0700) == 0) return {};
  if (errno == EEXIST && is_folder_of_ours(path / "s", there)) return {};
  return fail_errno(fmt::format("make a folder in '{}'", path.string()), errno);
}

/// Locks a folder that was just made, and finishes it.
Result<Fd> take_folder(const fs::path& path) {
  TESON_TRY(Fd lock, open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat held{};
  if (::fstat(lock.get(), &held) != 0)
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  if (held.st_uid != ::geteuid() || (held.st_mode & 077) != 0) {
    return fail(ErrorKind::failed,
                fmt::format("'{}' is a folder of another user or open to others; expected one of "
                            "this run",
                            path.string()));
  }
  // Who looks for stale ones holds it for a moment.
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno(fmt::format("lock '{}'", path.string()), errno);
  }
  TESON_TRY_VOID(make_inner(path));
  return lock;
}

}  // namespace

Result<OwnedSocketFolder> make_socket_folder(const fs::path& base) {
  std::string path = (base / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    return fail_errno(fmt::format("make a folder in '{}'", base.string()), errno);
  auto lock = take_folder(path);
  if (!lock) {
    remove_socket_folder(path);
    return fail(lock.error());
  }
  return OwnedSocketFolder{path, std::move(*lock)};
}

Result<bool> restore_socket_folder(OwnedSocketFolder& folder) {
  struct stat held{}, there{}, inner{};
  const bool same = ::fstat(folder.lock.get(), &held) == 0 &&
                    ::lstat(folder.path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
                    held.st_dev == there.st_dev;
  if (same && is_folder_of_ours(folder.sockets(), inner)) return false;
  if (same) return make_inner(folder.path).map([] { return true; });
  if (::mkdir(folder.path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(fmt::format("make folder '{}'", folder.path.string()), errno);
  TESON_TRY(folder.lock, take_folder(folder.path));
  return true;
}

void remove_socket_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

void remove_stale_socket_folder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  struct stat info{};
  if (name.size() != kNameBytes || name.rfind(kPrefix, 0) != 0 || !is_folder_of_ours(folder, info))
    return;
  const auto lock = open_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!lock || ::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) return;
  struct stat inner{};
  if (!is_folder_of_ours(folder / "s", inner) &&
      std::time(nullptr) - info.st_mtime < kUnfinishedAgeMin_s)
    return;
  remove_socket_folder(folder);
}

void remove_stale_socket_folders(const fs::path& base) {
  std::error_code code;
  int looked_at = 0;
  for (fs::directory_iterator entry(base, code), end;
       !code && entry != end && looked_at < kEntriesMax; entry.increment(code)) {
    ++looked_at;
    remove_stale_socket_folder(entry->path());
  }
}

}  // namespace teson::job
