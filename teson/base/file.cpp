#include "teson/base/file.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "teson/base/random.h"

namespace teson {
namespace fs = std::filesystem;

namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Failure not_regular(const fs::path& path) {
  struct stat info{};
  const bool known = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  return fail(ErrorKind::invalid,
              fmt::format("'{}': expected a regular file, found {}; move it out of the way",
                          path.string(), known ? kind_of(info.st_mode) : "something else"));
}

Result<Fd> open_any(const fs::path& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  // A folder, or a named pipe or a socket without another end.
  if (fd < 0 && (errno == EISDIR || errno == ENXIO)) return not_regular(path);
  if (fd < 0) return fail_errno(fmt::format("open '{}'", path.string()), errno);
  return Fd(fd);
}

Result<std::string> read_all(const Fd& file, const fs::path& path, std::size_t bytes_max) {
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got == 0) return contents;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(fmt::format("read '{}'", path.string()), errno);
    contents.append(buffer, static_cast<std::size_t>(got));
    if (contents.size() > bytes_max) {
      return fail(ErrorKind::invalid, fmt::format("'{}' is larger than the {} bytes expected here",
                                                  path.string(), bytes_max));
    }
  }
}

}  // namespace

Result<Fd> open_file(const fs::path& path, int flags, unsigned mode) {
  // Not to wait for the other end of a named pipe that took the file's place.
  TESON_TRY(Fd file, open_any(path, flags | O_NONBLOCK, mode));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0)
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  if (!S_ISREG(info.st_mode) && (flags & O_DIRECTORY) == 0) return not_regular(path);
  return file;
}

Result<std::string> read_file(const fs::path& path, std::size_t bytes_max) {
  TESON_TRY(const Fd file, open_file(path, O_RDONLY));
  return read_all(file, path, bytes_max);
}

Result<std::string> read_pipe(const fs::path& path, std::size_t bytes_max) {
  TESON_TRY(const Fd pipe, open_any(path, O_RDONLY, 0));
  return read_all(pipe, path, bytes_max);
}

Result<void> write_all(int fd, std::string_view data, const fs::path& path_for_errors) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno(fmt::format("write '{}'", path_for_errors.string()), errno);
    data.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> sync_folder(const fs::path& folder) {
  TESON_TRY(const Fd fd,
            open_file(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return fail_errno(fmt::format("fsync '{}'", folder.string()), errno);
  return {};
}

Result<void> write_file_atomic(const fs::path& path, std::string_view data) {
  const fs::path temporary = path.string() + fmt::format(".tmp-{:016x}", entropy64());
  auto written = [&]() -> Result<void> {
    TESON_TRY(const Fd file, open_file(temporary, O_WRONLY | O_CREAT | O_EXCL));
    TESON_TRY_VOID(write_all(file.get(), data, temporary));
    if (::fsync(file.get()) != 0)
      return fail_errno(fmt::format("fsync '{}'", temporary.string()), errno);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return fail_errno(fmt::format("rename '{}' to '{}'", temporary.string(), path.string()),
                        errno);
    }
    return {};
  }();
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder(path.parent_path());
}

Result<void> make_folders(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code.value() == ENOTDIR || code.value() == EEXIST) {
    return fail(
        ErrorKind::invalid,
        fmt::format("'{}' cannot be made: a part of it exists and is not a folder", path.string()));
  }
  if (code) return fail_errno(fmt::format("make folder '{}'", path.string()), code.value());
  if (!fs::is_directory(path, code)) {
    return fail(ErrorKind::invalid, fmt::format("'{}' exists and is not a folder", path.string()));
  }
  return {};
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
  TESON_TRY(const Fd file, open_file(path, O_RDONLY));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0)
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  MappedFile mapped;
  mapped.size_ = static_cast<std::size_t>(info.st_size);
  if (mapped.size_ == 0) return mapped;
  void* address = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return fail_errno(fmt::format("map '{}'", path.string()), errno);
  mapped.data_ = address;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace teson
