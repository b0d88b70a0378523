#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson {

/// The changes a checkpoint makes to a disk, one virtual function a kind of system call, so that a
/// test can fail any of them or end the process before and after each. Reading needs no seam: tests
/// damage the files. Threads: any.
class Disk {
 public:
  virtual ~Disk() = default;
  /// Bytes an unprivileged process can still write in the file system of `folder`.
  virtual Result<std::uint64_t> free_bytes(const std::filesystem::path& folder) = 0;
  /// A folder that must not exist yet; its parent must.
  virtual Result<void> make_folder(const std::filesystem::path& path) = 0;
  /// A file for writing that must not exist yet.
  virtual Result<Fd> create(const std::filesystem::path& path) = 0;
  /// All of `bytes`, at the descriptor's position.
  virtual Result<void> write(int fd, std::span<const std::byte> bytes,
                             const std::filesystem::path& path_for_errors) = 0;
  virtual Result<void> sync(int fd, const std::filesystem::path& path_for_errors) = 0;
  virtual Result<void> sync_folder(const std::filesystem::path& path) = 0;
  virtual Result<void> rename(const std::filesystem::path& from,
                              const std::filesystem::path& to) = 0;
  /// A file, or an empty folder. One that is already gone is no error.
  virtual Result<void> remove(const std::filesystem::path& path) = 0;
};

/// The machine's own.
class SystemDisk : public Disk {
 public:
  Result<std::uint64_t> free_bytes(const std::filesystem::path& folder) override;
  Result<void> make_folder(const std::filesystem::path& path) override;
  Result<Fd> create(const std::filesystem::path& path) override;
  Result<void> write(int fd, std::span<const std::byte> bytes,
                     const std::filesystem::path& path_for_errors) override;
  Result<void> sync(int fd, const std::filesystem::path& path_for_errors) override;
  Result<void> sync_folder(const std::filesystem::path& path) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> remove(const std::filesystem::path& path) override;
};

}  // namespace teson
