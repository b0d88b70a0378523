#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::data {

/// Documents on the way from the sources to the shards, in a file without a name: gone with the
/// process, however it ends. So the sources are read once and cannot change between two passes. One
/// thread.
class Spool {
 public:
  static Result<Spool> make(const std::filesystem::path& folder);
  Result<void> append(std::string_view document);
  /// Every document in order. An error of `take` ends the pass and is returned.
  Result<void> for_each(const std::function<Result<void>(std::string_view)>& take);

 private:
  Spool(Fd file, std::filesystem::path folder)
      : file_(std::move(file)), folder_(std::move(folder)) {}
  Result<void> flush();

  Fd file_;
  std::filesystem::path folder_;  ///< for messages
  std::string buffer_;
  std::uint64_t written_ = 0;
};

}  // namespace teson::data
