#include "teson/checkpoint/disk.h"

#include <cerrno>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "teson/base/file.h"

namespace teson {
namespace fs = std::filesystem;

Result<std::uint64_t> SystemDisk::free_bytes(const fs::path& folder) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return fail_errno(fmt::format("statvfs '{}'", folder.string()), errno);
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<void> SystemDisk::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0755) != 0)
    return fail_errno(fmt::format("mkdir '{}'", path.string()), errno);
  return {};
}

Result<Fd> SystemDisk::create(const fs::path& path) {
  return open_file(path, O_WRONLY | O_CREAT | O_EXCL);
}

Result<void> SystemDisk::write(int fd, std::span<const std::byte> bytes,
                               const fs::path& path_for_errors) {
  return write_all(fd, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                   path_for_errors);
}

Result<void> SystemDisk::sync(int fd, const fs::path& path_for_errors) {
  if (::fsync(fd) != 0)
    return fail_errno(fmt::format("fsync '{}'", path_for_errors.string()), errno);
  return {};
}

Result<void> SystemDisk::sync_folder(const fs::path& path) {
  return teson::sync_folder(path);
}

Result<void> SystemDisk::rename(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return fail_errno(fmt::format("rename '{}' to '{}'", from.string(), to.string()), errno);
  }
  return {};
}

Result<void> SystemDisk::remove(const fs::path& path) {
  if (std::remove(path.c_str()) != 0 && errno != ENOENT) {
    return fail_errno(fmt::format("remove '{}'", path.string()), errno);
  }
  return {};
}

}  // namespace teson
