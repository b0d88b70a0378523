#pragma once

#include <cstddef>
#include <span>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::net {

/// Memory without a name that several processes of one host map: its maker writes, others read. It
/// is made with its size, which never changes, so that a reader cannot meet a page that is gone;
/// nor can a reader write (Linux 5.1 and later). A forked child does not inherit it. Move-only.
class SharedMemory {
 public:
  /// Zeroed, and reserved at once. Errors: the system has no memory or no descriptor for it.
  static Result<SharedMemory> make(std::size_t bytes);
  /// The first `bytes` of what another process has made. `invalid` if the descriptor is not of such
  /// memory, or holds less.
  static Result<SharedMemory> open(const Fd& fd, std::size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Of the maker only: a reader's memory must not be written.
  std::span<std::byte> writable() { return {data_, size_}; }
  /// What others open; -1 for a reader.
  int fd() const { return fd_.get(); }

 private:
  static Result<SharedMemory> map(int fd, std::size_t bytes, int protection);

  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace teson::net
