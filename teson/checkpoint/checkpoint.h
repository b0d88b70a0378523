#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/checkpoint/disk.h"
#include "teson/checkpoint/meta.h"

namespace teson {

/// One array of a training state ("weights", "adam_m", "adam_v"), as bytes in memory order. The
/// memory stays the caller's and must not change until the call that takes it returns.
struct CheckpointSection {
  std::string name;
  std::span<const std::byte> bytes;
};

/// fp32 values as a section; little-endian, as every machine of ours.
inline CheckpointSection float_section(std::string name, std::span<const float> values) {
  return {std::move(name), std::as_bytes(values)};
}

/// Which checkpoint is newer: the higher incarnation, then the higher step.
struct CheckpointId {
  std::uint64_t incarnation = 0;
  std::uint64_t step = 0;
  auto operator<=>(const CheckpointId&) const = default;
};

/// "inc-000001-step-000000009900": sorts by number as text too.
std::string checkpoint_name(CheckpointId id);
/// The reverse, whatever the padding; nothing for any other name.
std::optional<CheckpointId> parse_checkpoint_name(std::string_view name);

struct CheckpointEntry {
  CheckpointId id;
  std::filesystem::path path;
};

/// A checkpoint that was passed over, and why ("'…/weights-00001.bin': block 3 … checksum …").
struct SkippedCheckpoint {
  std::filesystem::path path;
  std::string reason;
};

struct Manifest;

/// One complete checkpoint, open for reading. Movable; one thread at a time, several readers of one
/// folder are fine.
class CheckpointReader {
 public:
  /// Checks the manifest's own checksum, and of every file it names the presence, size and header.
  /// Any fault is `invalid` (or `failed` when the system refuses) and names the file. Does not read
  /// the arrays: see verify(). `folder` may have any name.
  static Result<CheckpointReader> open(const std::filesystem::path& folder);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::filesystem::path& path() const;
  const CheckpointMeta& meta() const;
  std::vector<std::string> section_names() const;
  /// nothing if there is no such section.
  std::optional<std::uint64_t> section_bytes(std::string_view name) const;

  /// Reads every byte of every section against its checksum. Memory: one block.
  /// `aborted` when `stop` was asked for.
  Result<void> verify(const std::stop_token& stop = {}) const;
  /// The bytes [offset, offset + into.size()) of a section, each block verified. On an error `into`
  /// holds no promise.
  Result<void> read(std::string_view section, std::uint64_t offset,
                    std::span<std::byte> into) const;
  /// A whole section of fp32; refuses a size that differs from `into`'s.
  Result<void> read_floats(std::string_view section, std::span<float> into) const;
  /// A whole section in new memory.
  Result<std::vector<float>> read_floats(std::string_view section) const;

 private:
  CheckpointReader();
  std::filesystem::path path_;
  std::unique_ptr<Manifest> manifest_;
};

/// The newest checkpoint that is whole, and the newer ones that are not.
struct NewestCheckpoint {
  std::optional<CheckpointReader> checkpoint;
  std::vector<SkippedCheckpoint> skipped;
};

struct CheckpointOptions {
  /// Largest payload of one file; a section is cut into as many as it takes.
  std::uint64_t shard_bytes = 256ULL << 20;
  /// Unit of checksums and of reading.
  std::uint32_t block_bytes = 1U << 20;
};

/// The checkpoints of one run: a folder with one folder a checkpoint. A checkpoint is written under
/// a name that no reader looks at
/// (".partial-…"), made durable, then published by one rename; removed by the reverse
/// (".removing-…"). So a reader, or a process killed at any instruction, sees a whole checkpoint or
/// none. Layout: docs/formats/checkpoint.md.
///
/// Threads: any, and other processes beside: each call stands alone. `disk` outlives the store.
class CheckpointStore {
 public:
  CheckpointStore(std::filesystem::path root, Disk& disk, CheckpointOptions options = {});

  const std::filesystem::path& root() const { return root_; }

  /// Writes and publishes; returns the folder. Makes `root` if needed. On any error nothing is
  /// published and what was written is removed: `failed` with the system's reason (disk full, no
  /// permission), `invalid` for a state that contradicts itself (parameters beyond the sections, a
  /// section name twice), `aborted` when `stop` was asked for (looked at once a block). A whole
  /// checkpoint of the same incarnation and step with the same chain hash counts as written; with
  /// another one it is `invalid`, and so is an incarnation older than one that is there.
  Result<std::filesystem::path> write(const CheckpointMeta& meta,
                                      std::span<const CheckpointSection> sections,
                                      std::stop_token stop = {}) const;

  /// Published checkpoints, newest first; says nothing of their contents. A root that does not
  /// exist holds none.
  Result<std::vector<CheckpointEntry>> list() const;

  /// The newest one of which every byte was verified; none only where there are none. Only damage
  /// is passed over: a newer one that cannot be read for another reason (no permission, a failing
  /// disk, no descriptors left) is that error. `invalid` if all are damaged; `aborted` when `stop`
  /// was asked for.
  Result<NewestCheckpoint> newest_complete(const std::stop_token& stop = {}) const;

  /// Renames a damaged one to "damaged-…", which no reader looks at and nobody removes; returns the
  /// new path. One that is already gone is no error.
  Result<std::filesystem::path> set_aside(const std::filesystem::path& path) const;

  /// Removes all but the newest `keep` (at least 1) complete ones. Before it removes anything, the
  /// newest kept one is verified in every byte; damaged ones count for nothing, and stay. Returns
  /// what was removed.
  Result<std::vector<std::filesystem::path>> remove_old(std::size_t keep) const;

  /// Removes what dead writers and half-done removals left. A living writer's folder is locked and
  /// stays; one of another boot or host goes an hour after its last change. Returns what was
  /// removed.
  Result<std::vector<std::filesystem::path>> clean_stale() const;

 private:
  Result<std::filesystem::path> publish(const std::filesystem::path& partial, CheckpointId id,
                                        const CheckpointMeta& meta) const;
  std::filesystem::path root_;
  Disk& disk_;
  CheckpointOptions options_;
};

}  // namespace teson
