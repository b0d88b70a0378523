#include "teson/net/shared_memory.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace teson::net {

namespace {

/// Without F_SEAL_FUTURE_WRITE, which some kernels do not know.
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

Failure not_shared(const std::string& found) {
  return fail(ErrorKind::invalid,
              "expected a descriptor of shared memory of fixed size, found " + found);
}

}  // namespace

Result<SharedMemory> SharedMemory::make(std::size_t bytes) {
  Fd fd(::memfd_create("teson-payload", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno("memfd_create", errno);
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
    return fail_errno(fmt::format("reserving {} bytes of shared memory", bytes), errno);
  TESON_TRY(SharedMemory memory, map(fd.get(), bytes, PROT_READ | PROT_WRITE));
  if (::fcntl(fd.get(), F_ADD_SEALS, size_seals) != 0)
    return fail_errno("fixing the size of shared memory", errno);
  (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  memory.fd_ = std::move(fd);
  return memory;
}

Result<SharedMemory> SharedMemory::open(const Fd& fd, std::size_t bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return not_shared("one of something else");
  if ((seals & size_seals) != size_seals) return not_shared("one whose size can change");
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("fstat of shared memory", errno);
  if (bytes == 0 || static_cast<std::size_t>(status.st_size) < bytes)
    return not_shared(fmt::format("{} bytes where {} are claimed", status.st_size, bytes));
  return map(fd.get(), bytes, PROT_READ);
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t bytes, int protection) {
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return fail_errno(fmt::format("mapping {} bytes of shared memory", bytes), errno);
  (void)::madvise(data, bytes, MADV_DONTFORK);
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace teson::net
