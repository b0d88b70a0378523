#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/checkpoint/disk.h"

namespace teson {

/// Folders beside the published checkpoints that no reader looks at.
inline constexpr std::string_view partial_prefix = ".partial-";
inline constexpr std::string_view removing_prefix = ".removing-";
inline constexpr std::string_view damaged_prefix = "damaged-";

/// ".removing-<random>-<name>" beside `path`.
std::filesystem::path removing_name(const std::filesystem::path& path);

/// A folder that is being written: ".partial-<boot>-<random>-<name>", held by a lock that the
/// kernel drops with its writer.
struct PartialFolder {
  std::filesystem::path path;
  Fd lock;
};
Result<PartialFolder> make_partial(Disk& disk, const std::filesystem::path& root, CheckpointId id);

/// Whether nobody writes this partial folder any more. When so, `lock` is held, so that no other
/// cleaner decides too.
bool is_abandoned(const std::filesystem::path& partial, Fd& lock);

/// A folder and what is in it; goes on over what is already gone. Does not follow links.
Result<void> remove_tree(Disk& disk, const std::filesystem::path& path);

}  // namespace teson
