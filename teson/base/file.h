#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson {

/// Opens a regular file with O_CLOEXEC, or with O_DIRECTORY a folder; the error names the path.
/// Anything else in its place is `invalid`, and never waited for.
Result<Fd> open_file(const std::filesystem::path& path, int flags, unsigned mode = 0644);

/// The whole file. Refuses one larger than `bytes_max` (invalid), so that a wrong path cannot fill
/// the memory.
Result<std::string> read_file(const std::filesystem::path& path,
                              std::size_t bytes_max = 1ULL << 30);

/// The same for a pipe, to its end: waits for who writes it.
Result<std::string> read_pipe(const std::filesystem::path& path,
                              std::size_t bytes_max = 1ULL << 30);

/// Writes all of `data` at the descriptor's position, over short writes and interrupts.
Result<void> write_all(int fd, std::string_view data, const std::filesystem::path& path_for_errors);

/// Replaces `path` in one step: a temporary file beside it, fsync, rename, fsync of the folder. A
/// reader sees the old contents or the new ones; a crash leaves one or the other. On failure the
/// temporary file is removed.
Result<void> write_file_atomic(const std::filesystem::path& path, std::string_view data);

/// Makes a folder's entries durable.
Result<void> sync_folder(const std::filesystem::path& folder);

/// mkdir -p, with an error that names the part that could not be made.
Result<void> make_folders(const std::filesystem::path& path);

/// A file mapped read-only. Threads: reads from any.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace teson
