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
/// Younger ones may just be made: their lock comes after the folder.
constexpr int kUnlockedAgeMin_s = 60;

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

Result<OwnedSocketFolder> make_socket_folder(const fs::path& base) {
  std::string path = (base / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    return fail_errno(fmt::format("make a folder in '{}'", base.string()), errno);
  OwnedSocketFolder made;
  made.path = path;
  auto lock = open_file(made.path / "lock", O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!lock || ::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    remove_socket_folder(made.path);
    if (!lock) return fail(lock.error());
    return fail_errno(fmt::format("lock '{}'", path), error);
  }
  made.lock = std::move(*lock);
  return made;
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
  const auto lock = open_file(folder / "lock", O_RDONLY | O_NOFOLLOW);
  if (lock ? ::flock(lock->get(), LOCK_EX | LOCK_NB) != 0
           : std::time(nullptr) - info.st_mtime < kUnlockedAgeMin_s)
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
