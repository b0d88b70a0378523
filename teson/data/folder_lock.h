#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::data {

/// Advisory locks on a file (flock): they end with the process that holds them, however it ends,
/// and two holders inside one process exclude each other too. Movable; released when it goes.
class FolderLock {
 public:
  FolderLock() = default;
  /// Makes the file if needed. Waits while another holds it, calling `waiting` every 50 ms;
  /// `aborted` once `stop` is requested.
  static Result<FolderLock> exclusive(const std::filesystem::path& file, std::stop_token stop,
                                      const std::function<void()>& waiting);
  /// The same, but `timed_out` if another still holds it after `patience`, counted in tries of 50
  /// ms.
  static Result<FolderLock> exclusive_within(const std::filesystem::path& file,
                                             std::chrono::milliseconds patience,
                                             std::stop_token stop);
  /// `aborted` if another holds it exclusively. Without the file, and nowhere to make it (a
  /// read-only folder), there is nobody to lock out: an empty lock.
  static Result<FolderLock> try_shared(const std::filesystem::path& file);

 private:
  static Result<FolderLock> poll(const std::filesystem::path& file, std::stop_token stop,
                                 const std::function<bool()>& go_on);
  explicit FolderLock(Fd file) : file_(std::move(file)) {}
  Fd file_;
};

}  // namespace teson::data
