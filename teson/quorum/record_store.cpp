#include "teson/quorum/record_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/net/codec.h"

namespace teson::quorum {
namespace {

/// 48 bytes, little-endian: magic, version, generation, payload length, hash of the payload, hash
/// of the words before.
struct SlotHeader {
  std::uint64_t magic = 0;
  std::uint64_t version = 0;
  std::uint64_t generation = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_hash = 0;
  std::uint64_t header_hash = 0;
};
constexpr std::uint64_t slot_magic = 0x4452'4f43'4552'5354;  // "TSRECORD"
constexpr std::uint64_t slot_version = 1;

std::uint64_t hash_of(const SlotHeader& header) {
  return hash64(std::as_bytes(std::span(&header, 1)).first(offsetof(SlotHeader, header_hash)));
}

std::string slot_image(std::uint64_t generation, const std::string& payload) {
  SlotHeader header{slot_magic, slot_version, generation, payload.size(), hash64(payload), 0};
  header.header_hash = hash_of(header);
  std::string image(sizeof(header), '\0');
  std::memcpy(image.data(), &header, sizeof(header));
  return image + payload;
}

struct Slot {
  std::uint64_t generation = 0;
  StoredRecord stored;
};

/// Nothing unless every byte that matters is as it was written.
std::optional<Slot> read_slot(int fd, int slot) {
  std::string bytes(RecordStore::slot_bytes, '\0');
  const auto at = static_cast<off_t>(RecordStore::slot_bytes) * slot;
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t count =
        ::pread(fd, bytes.data() + got, bytes.size() - got, at + static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    got += static_cast<std::size_t>(count);
  }
  SlotHeader header;
  if (got < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != slot_magic || header.version != slot_version ||
      header.header_hash != hash_of(header) || header.payload_bytes > got - sizeof(header)) {
    return std::nullopt;
  }
  const std::string_view payload =
      std::string_view(bytes).substr(sizeof(header), header.payload_bytes);
  if (hash64(payload) != header.payload_hash) return std::nullopt;
  auto stored = net::decode<StoredRecord>(payload);
  if (!stored || (stored->record && !check_record(*stored->record))) return std::nullopt;
  return Slot{header.generation, std::move(*stored)};
}

/// Made beside its place and linked there whole, so that no reader ever sees half a file and two
/// makers cannot replace each other's.
Result<void> make_file(const std::filesystem::path& path) {
  std::filesystem::path temporary = path;
  temporary += fmt::format(".{:016x}.new", entropy64());
  {
    TESON_TRY(Fd file, open_file(temporary, O_RDWR | O_CREAT | O_EXCL, 0600));
    std::string image = slot_image(1, net::encode(StoredRecord{}));
    image.resize(2 * RecordStore::slot_bytes, '\0');
    Result<void> written = write_all(file.get(), image, temporary);
    if (written && ::fsync(file.get()) != 0)
      written = fail_errno(fmt::format("fsync '{}'", temporary.string()), errno);
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  const int linked = ::link(temporary.c_str(), path.c_str());
  const int error_number = errno;
  ::unlink(temporary.c_str());
  if (linked != 0 && error_number != EEXIST)
    return fail_errno(fmt::format("make '{}'", path.string()), error_number);
  return sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace

Result<RecordStore> RecordStore::open(const std::filesystem::path& path) {
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    TESON_TRY_VOID(make_file(path));
  RecordStore store;
  store.path_ = path;
  TESON_TRY(store.file_, open_file(path, O_RDWR));
  if (::flock(store.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(fmt::format("lock '{}'", path.string()), errno);
    return fail(
        ErrorKind::failed,
        fmt::format("'{}' is in use by a running lighthouse: stop it first, or give this one "
                    "another record file",
                    path.string()));
  }
  std::array<std::optional<Slot>, 2> slots = {read_slot(store.file_.get(), 0),
                                              read_slot(store.file_.get(), 1)};
  if (!slots[0] && !slots[1]) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "'{}': expected a lighthouse record with a whole slot, found none: the file is damaged "
            "or not one. "
            "If no process of the job lives, remove it: the job then starts from its checkpoints",
            path.string()));
  }
  store.newest_slot_ =
      slots[1] && (!slots[0] || slots[1]->generation > slots[0]->generation) ? 1 : 0;
  Slot& newest = *slots[static_cast<std::size_t>(store.newest_slot_)];
  store.generation_ = newest.generation;
  store.stored_ = std::move(newest.stored);
  store.mirrored_ = slots[0] && slots[1] && slots[0]->generation == slots[1]->generation;
  struct stat info{};
  if (::fstat(store.file_.get(), &info) != 0)
    return fail_errno(fmt::format("stat '{}'", path.string()), errno);
  if (static_cast<std::size_t>(info.st_size) < 2 * slot_bytes) {
    // A truncated file gets its blocks back before they are needed.
    if (const int error = ::posix_fallocate(store.file_.get(), 0, 2 * slot_bytes); error != 0) {
      return fail_errno(fmt::format("allocate '{}'", path.string()), error);
    }
  }
  return store;
}

Result<std::uint32_t> RecordStore::begin_term() {
  StoredRecord next = stored_;
  ++next.term;
  TESON_TRY_VOID(write(next));
  TESON_TRY_VOID(mirror());
  return stored_.term;
}

Result<void> RecordStore::swap(EpochRecord next) {
  const std::int64_t present = stored_.record ? stored_.record->epoch : 0;
  if (next.parent != present || next.epoch <= present) {
    return fail(ErrorKind::aborted, fmt::format("record of epoch {} follows {}, but '{}' holds {}",
                                                epoch_text(next.epoch), epoch_text(next.parent),
                                                path_.string(), epoch_text(present)));
  }
  TESON_TRY_VOID(check_record(next));
  StoredRecord stored = stored_;
  stored.record = std::move(next);
  return write(stored);
}

Result<void> RecordStore::write(const StoredRecord& stored) {
  struct stat mine{};
  struct stat there{};
  if (::fstat(file_.get(), &mine) != 0 || ::stat(path_.c_str(), &there) != 0 ||
      mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
    return fail(ErrorKind::aborted,
                fmt::format("'{}' was replaced or removed while this lighthouse was running on it",
                            path_.string()));
  }
  std::string payload = net::encode(stored);
  StoredRecord kept = stored;
  if (payload.size() + sizeof(SlotHeader) > slot_bytes && kept.record) {
    for (Member& member : kept.record->members)
      member.tiles_final.clear();
    payload = net::encode(kept);
  }
  if (payload.size() + sizeof(SlotHeader) > slot_bytes) {
    return fail(ErrorKind::overloaded,
                fmt::format("the epoch record has {} bytes, at most {} fit", payload.size(),
                            slot_bytes - sizeof(SlotHeader)));
  }
  const int slot = 1 - newest_slot_;
  TESON_TRY_VOID(write_slot(slot, slot_image(generation_ + 1, payload)));
  ++generation_;
  newest_slot_ = slot;
  mirrored_ = false;
  stored_ = std::move(kept);
  return {};
}

Result<void> RecordStore::mirror() {
  if (mirrored_) return {};
  TESON_TRY_VOID(write_slot(1 - newest_slot_, slot_image(generation_, net::encode(stored_))));
  mirrored_ = true;
  return {};
}

Result<void> RecordStore::write_slot(int slot, const std::string& bytes) {
  TESON_CHECK(bytes.size() <= slot_bytes, bytes.size());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto at = static_cast<off_t>(slot_bytes) * slot + static_cast<off_t>(done);
    const ssize_t count = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(fmt::format("write '{}'", path_.string()), errno);
    done += static_cast<std::size_t>(count);
  }
  if (::fdatasync(file_.get()) != 0)
    return fail_errno(fmt::format("fsync '{}'", path_.string()), errno);
  return {};
}

}  // namespace teson::quorum
