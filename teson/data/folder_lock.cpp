#include "teson/data/folder_lock.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include "teson/base/file.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kPoll{50};

/// True once locked, false if another holds it.
Result<bool> try_flock(const Fd& file, int how, const fs::path& path) {
  while (::flock(file.get(), how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return fail_errno(fmt::format("lock '{}'", path.string()), errno);
  }
  return true;
}

Failure held(ErrorKind kind, const fs::path& path) {
  return fail(kind, fmt::format("'{}' is held by another process", path.string()));
}

}  // namespace

Result<FolderLock> FolderLock::poll(const fs::path& path, std::stop_token stop,
                                    const std::function<bool()>& go_on) {
  TESON_TRY(Fd file, open_file(path, O_RDWR | O_CREAT));
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock guard(mutex);
  while (true) {
    TESON_TRY(const bool locked, try_flock(file, LOCK_EX, path));
    if (locked) return FolderLock(std::move(file));
    if (!go_on()) return held(ErrorKind::timed_out, path);
    woken.wait_for(guard, stop, kPoll, [] { return false; });
    if (stop.stop_requested()) {
      return fail(
          ErrorKind::aborted,
          fmt::format("stopped while waiting for '{}', held by another process", path.string()));
    }
  }
}

Result<FolderLock> FolderLock::exclusive(const fs::path& path, std::stop_token stop,
                                         const std::function<void()>& waiting) {
  return poll(path, std::move(stop), [&] {
    if (waiting) waiting();
    return true;
  });
}

Result<FolderLock> FolderLock::exclusive_within(const fs::path& path,
                                                std::chrono::milliseconds patience,
                                                std::stop_token stop) {
  auto tries_left = patience / kPoll;
  return poll(path, std::move(stop), [&] { return tries_left-- > 0; });
}

Result<FolderLock> FolderLock::try_shared(const fs::path& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0 && (errno == EROFS || errno == EACCES))
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == EROFS || errno == EACCES || errno == ENOENT)) return FolderLock();
  if (fd < 0) return fail_errno(fmt::format("open '{}'", path.string()), errno);
  Fd file(fd);
  TESON_TRY(const bool locked, try_flock(file, LOCK_SH, path));
  if (!locked) return held(ErrorKind::aborted, path);
  return FolderLock(std::move(file));
}

}  // namespace teson::data
