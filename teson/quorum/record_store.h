#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/quorum/record.h"

namespace teson::quorum {

/// What the file holds: the newest record and how often a lighthouse has started on it.
struct StoredRecord {
  std::uint32_t term = 0;
  std::optional<EpochRecord> record;
};

/// The one durable register of a lighthouse. A file of two slots, allocated and zeroed when it is
/// made, so that neither a full disk nor a crash in the middle of a write can take the record away:
/// a write goes to the older slot, is checksummed, fsynced, and only then is the newest; reading
/// takes the newest slot that is whole. mirror() later copies the newest record to both, so that
/// one damaged sector costs nothing. The file is locked for the life of the store: a second
/// lighthouse on it is refused. One thread.
class RecordStore {
 public:
  /// A record with more bytes is stored without its final tiles (they are computed again); without
  /// them it must fit.
  static constexpr std::size_t slot_bytes = std::size_t{1} << 20;

  /// Opens or makes the file. Errors: `failed`: in use by a living lighthouse, or the disk;
  /// `invalid`: not such a file, or both slots damaged (the message says what to do).
  static Result<RecordStore> open(const std::filesystem::path& path);
  RecordStore(RecordStore&&) noexcept = default;
  RecordStore& operator=(RecordStore&&) noexcept = default;

  const std::optional<EpochRecord>& record() const { return stored_.record; }
  std::uint32_t term() const { return stored_.term; }

  /// A new term, durable on return: epochs made of it were never used before.
  Result<std::uint32_t> begin_term();
  /// Makes `next` the record if next.parent is the epoch of the present one (0: none) and
  /// next.epoch is greater; durable on return. `aborted`: it is not, or another wrote the file:
  /// step down.
  Result<void> swap(EpochRecord next);
  /// Brings the older slot level. Cheap if it is. Not urgent.
  Result<void> mirror();

 private:
  RecordStore() = default;
  Result<void> write(const StoredRecord& stored);
  Result<void> write_slot(int slot, const std::string& bytes);

  std::filesystem::path path_;
  Fd file_;
  StoredRecord stored_;
  std::uint64_t generation_ = 0;
  int newest_slot_ = 1;
  bool mirrored_ = false;
};

}  // namespace teson::quorum
