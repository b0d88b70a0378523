#include "teson/checkpoint/checkpoint.h"

#include <algorithm>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/checkpoint/manifest.h"
#include "teson/checkpoint/names.h"
#include "teson/checkpoint/shard_file.h"

namespace teson {
namespace fs = std::filesystem;
namespace {

/// Beyond the arrays: manifest, headers, tables, the file system's own.
constexpr std::uint64_t free_bytes_spare = 1U << 20;
/// How often a folder that others change is listed again.
constexpr int list_attempts_max = 5;

Result<Manifest> plan(const CheckpointMeta& meta, std::span<const CheckpointSection> sections,
                      const CheckpointOptions& options) {
  Manifest manifest{.meta = meta, .block_bytes = options.block_bytes, .sections = {}};
  for (const auto& section : sections) {
    manifest.sections.push_back(
        plan_section(section.name, section.bytes.size(), options.shard_bytes));
  }
  TESON_TRY_VOID(validate(manifest));
  return manifest;
}

Result<void> check_room(Disk& disk, const fs::path& root, const Manifest& manifest) {
  std::uint64_t needed = free_bytes_spare;
  for (const auto& section : manifest.sections) {
    for (std::uint32_t index = 0; index < section.shards.size(); ++index) {
      needed += shard_file_bytes(expected_header(manifest, section, index));
    }
  }
  TESON_TRY(const std::uint64_t free, disk.free_bytes(root));
  if (free < needed) {
    return fail(
        ErrorKind::failed,
        fmt::format(
            "no room for a checkpoint of {} MB in '{}', which has {} MB free: make room, or "
            "keep fewer checkpoints",
            needed / 1000000 + 1, root.string(), free / 1000000));
  }
  return {};
}

Result<void> fill(Disk& disk, const fs::path& folder, Manifest& manifest,
                  std::span<const CheckpointSection> sections, const std::stop_token& stop) {
  for (std::size_t number = 0; number < sections.size(); ++number) {
    auto& section = manifest.sections[number];
    for (std::uint32_t index = 0; index < section.shards.size(); ++index) {
      auto& shard = section.shards[index];
      TESON_TRY(shard.checksum,
                write_shard(disk, folder / shard_file_name(section.name, index),
                            expected_header(manifest, section, index),
                            sections[number].bytes.subspan(shard.offset, shard.bytes), stop));
    }
  }
  TESON_TRY(const std::string text, encode_manifest(manifest));
  const fs::path path = folder / manifest_file_name;
  TESON_TRY(const Fd file, disk.create(path));
  TESON_TRY_VOID(disk.write(file.get(), std::as_bytes(std::span(text)), path));
  TESON_TRY_VOID(disk.sync(file.get(), path));
  return disk.sync_folder(folder);
}

/// Whether the checkpoint itself is at fault: wrong bytes, missing files. Of any other error it may
/// be innocent.
bool is_damage(const Error& error) {
  return error.kind == ErrorKind::invalid;
}

bool is_gone(const fs::path& path) {
  std::error_code code;
  return fs::symlink_status(path, code).type() == fs::file_type::not_found;
}

/// Opens a published one and compares what it says with what its folder is called.
Result<CheckpointReader> open_named(const CheckpointEntry& entry) {
  TESON_TRY(CheckpointReader reader, CheckpointReader::open(entry.path));
  const auto& meta = reader.meta();
  if (CheckpointId{meta.incarnation, meta.step} != entry.id) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' holds incarnation {} step {}: the folder was renamed",
                            entry.path.string(), meta.incarnation, meta.step));
  }
  return reader;
}

/// The same, with every byte verified.
Result<CheckpointReader> open_whole(const CheckpointEntry& entry, const std::stop_token& stop) {
  TESON_TRY(CheckpointReader reader, open_named(entry));
  TESON_TRY_VOID(reader.verify(stop));
  return reader;
}

Failure all_damaged(const fs::path& root, const std::vector<SkippedCheckpoint>& skipped) {
  const auto& newest = skipped.front();
  return fail(
      ErrorKind::invalid,
      fmt::format("no checkpoint in '{}' is whole; the newest of {}, '{}': {}; put back a "
                  "copy, or begin from nothing with --start-anew",
                  root.string(), skipped.size(), newest.path.filename().string(), newest.reason));
}

}  // namespace

CheckpointReader::CheckpointReader() : manifest_(std::make_unique<Manifest>()) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

Result<CheckpointReader> CheckpointReader::open(const fs::path& folder) {
  CheckpointReader reader;
  reader.path_ = folder;
  const fs::path path = folder / manifest_file_name;
  TESON_TRY_VOID(expect_present(path));
  TESON_TRY(const std::string text, read_file(path, manifest_bytes_max));
  auto manifest = decode_manifest(text);
  if (!manifest) return fail(manifest.error().in(fmt::format("'{}'", path.string())));
  *reader.manifest_ = std::move(*manifest);
  for (const auto& section : reader.manifest_->sections) {
    for (std::uint32_t index = 0; index < section.shards.size(); ++index) {
      TESON_TRY_VOID(ShardReader::open(folder / shard_file_name(section.name, index),
                                       expected_header(*reader.manifest_, section, index),
                                       section.shards[index].checksum)
                         .map([](const ShardReader&) {}));
    }
  }
  return reader;
}

const fs::path& CheckpointReader::path() const {
  return path_;
}
const CheckpointMeta& CheckpointReader::meta() const {
  return manifest_->meta;
}

std::vector<std::string> CheckpointReader::section_names() const {
  std::vector<std::string> names;
  for (const auto& section : manifest_->sections)
    names.push_back(section.name);
  return names;
}

std::optional<std::uint64_t> CheckpointReader::section_bytes(std::string_view name) const {
  const auto* section = manifest_->find(name);
  return section == nullptr ? std::optional<std::uint64_t>() : section->bytes;
}

Result<void> CheckpointReader::verify(const std::stop_token& stop) const {
  for (const auto& section : manifest_->sections) {
    for (std::uint32_t index = 0; index < section.shards.size(); ++index) {
      TESON_TRY(const ShardReader shard,
                ShardReader::open(path_ / shard_file_name(section.name, index),
                                  expected_header(*manifest_, section, index),
                                  section.shards[index].checksum));
      TESON_TRY_VOID(shard.verify(stop));
    }
  }
  return {};
}

Result<void> CheckpointReader::read(std::string_view name, std::uint64_t offset,
                                    std::span<std::byte> into) const {
  const auto* section = manifest_->find(name);
  if (section == nullptr) {
    return fail(ErrorKind::invalid, fmt::format("'{}' has no section '{}', only {}", path_.string(),
                                                name, fmt::join(section_names(), ", ")));
  }
  if (offset > section->bytes || into.size() > section->bytes - offset) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': section '{}' has {} bytes, {}+{} were asked for", path_.string(),
                            name, section->bytes, offset, into.size()));
  }
  for (std::uint32_t index = 0; index < section->shards.size() && !into.empty(); ++index) {
    const auto& shard = section->shards[index];
    if (offset >= shard.offset + shard.bytes) continue;
    const std::uint64_t within = offset - shard.offset;
    const std::size_t wanted = std::min<std::uint64_t>(into.size(), shard.bytes - within);
    TESON_TRY(const ShardReader reader,
              ShardReader::open(path_ / shard_file_name(section->name, index),
                                expected_header(*manifest_, *section, index), shard.checksum));
    TESON_TRY_VOID(reader.read(within, into.first(wanted)));
    offset += wanted;
    into = into.subspan(wanted);
  }
  return {};
}

Result<void> CheckpointReader::read_floats(std::string_view section, std::span<float> into) const {
  if (const auto bytes = section_bytes(section); bytes && *bytes != into.size_bytes()) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': section '{}' has {} bytes, expected {} ({} numbers): it belongs "
                            "to another model",
                            path_.string(), section, *bytes, into.size_bytes(), into.size()));
  }
  return read(section, 0, std::as_writable_bytes(into));
}

Result<std::vector<float>> CheckpointReader::read_floats(std::string_view section) const {
  const std::uint64_t bytes = section_bytes(section).value_or(0);
  if (bytes % sizeof(float) != 0) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}': section '{}' has {} bytes, which are no fp32 numbers",
                            path_.string(), section, bytes));
  }
  std::vector<float> values(bytes / sizeof(float));
  TESON_TRY_VOID(read_floats(section, values));
  return values;
}

CheckpointStore::CheckpointStore(fs::path root, Disk& disk, CheckpointOptions options)
    : root_(std::move(root)), disk_(disk), options_(options) {
  TESON_CHECK(options_.shard_bytes > 0 && options_.block_bytes > 0 &&
                  options_.block_bytes <= block_bytes_max,
              options_.shard_bytes, options_.block_bytes);
}

Result<fs::path> CheckpointStore::write(const CheckpointMeta& meta,
                                        std::span<const CheckpointSection> sections,
                                        std::stop_token stop) const {
  const CheckpointId id{meta.incarnation, meta.step};
  TESON_TRY(Manifest manifest, plan(meta, sections, options_));
  TESON_TRY_VOID(make_folders(root_));
  // A writer of an earlier history, or another run in the same folder: its checkpoint would count
  // as old, and go, the moment it is written.
  TESON_TRY(const auto entries, list());
  if (!entries.empty() && entries.front().id.incarnation > id.incarnation) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' is of a newer history than incarnation {}: this state is not "
                            "written beside it; name another checkpoint.dir",
                            entries.front().path.string(), id.incarnation));
  }
  TESON_TRY_VOID(check_room(disk_, root_, manifest));
  TESON_TRY(const PartialFolder partial, make_partial(disk_, root_, id));
  auto published = fill(disk_, partial.path, manifest, sections, stop).and_then([&] {
    return publish(partial.path, id, meta);
  });
  if (!published) {
    // A removal that fails too leaves a folder that no reader looks at; clean_stale takes it later.
    (void)remove_tree(disk_, partial.path);
  }
  return published;
}

Result<fs::path> CheckpointStore::publish(const fs::path& partial, CheckpointId id,
                                          const CheckpointMeta& meta) const {
  const fs::path final_path = root_ / checkpoint_name(id);
  std::error_code code;
  if (fs::exists(final_path, code)) {
    const auto existing = open_whole({id, final_path}, {});
    if (!existing && !is_damage(existing.error())) return fail(existing.error());
    if (existing) {
      if (existing->meta().chain_hash != meta.chain_hash) {
        return fail(
            ErrorKind::invalid,
            fmt::format(
                "'{}' is there already, with another history ({}, this state has {}): resume "
                "under a new incarnation, or name another run folder",
                final_path.string(), existing->meta().chain_hash, meta.chain_hash));
      }
      TESON_TRY_VOID(remove_tree(disk_, partial));
      return final_path;
    }
    TESON_TRY_VOID(set_aside(final_path).map([](const fs::path&) {}));
  }
  TESON_TRY_VOID(disk_.rename(partial, final_path));
  if (auto synced = disk_.sync_folder(root_); !synced) {
    return fail(synced.error().in(fmt::format(
        "'{}' was published but may not survive a loss of power", final_path.string())));
  }
  return final_path;
}

Result<std::vector<CheckpointEntry>> CheckpointStore::list() const {
  std::vector<CheckpointEntry> entries;
  std::error_code code;
  for (fs::directory_iterator at(root_, code), end; !code && at != end; at.increment(code)) {
    if (const auto id = parse_checkpoint_name(at->path().filename().string())) {
      entries.push_back({*id, at->path()});
    }
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    return fail_errno(fmt::format("list checkpoints in '{}'", root_.string()), code.value());
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(b.id, b.path) < std::pair(a.id, a.path);
  });
  return entries;
}

Result<NewestCheckpoint> CheckpointStore::newest_complete(const std::stop_token& stop) const {
  for (int attempt = 0; attempt < list_attempts_max; ++attempt) {
    TESON_TRY(const auto entries, list());
    NewestCheckpoint newest;
    bool changed = false;  // a writer removed one that was listed: there are newer ones by now
    for (const auto& entry : entries) {
      auto reader = open_whole(entry, stop);
      if (reader) {
        newest.checkpoint = std::move(*reader);
        return newest;
      }
      changed = is_gone(entry.path);
      if (changed) break;
      if (!is_damage(reader.error())) return fail(reader.error());
      newest.skipped.push_back({entry.path, reader.error().message});
    }
    if (changed) continue;
    if (!newest.skipped.empty()) return all_damaged(root_, newest.skipped);
    return newest;
  }
  return fail(ErrorKind::failed,
              fmt::format("the checkpoints in '{}' vanish while they are read; is another program "
                          "cleaning it?",
                          root_.string()));
}

Result<fs::path> CheckpointStore::set_aside(const fs::path& path) const {
  fs::path aside = path.parent_path() / (std::string(damaged_prefix) + path.filename().string());
  // An earlier one of the same name is kept too.
  if (!is_gone(aside)) aside += fmt::format("-{:016x}", entropy64());
  const auto renamed = disk_.rename(path, aside);
  if (!renamed && !is_gone(path)) return fail(renamed.error());
  TESON_TRY_VOID(disk_.sync_folder(root_));
  return aside;
}

Result<std::vector<fs::path>> CheckpointStore::remove_old(std::size_t keep) const {
  if (keep == 0)
    return fail(ErrorKind::invalid, "keep must be at least 1: the newest checkpoint always stays");
  TESON_TRY(const auto entries, list());
  std::size_t kept = 0;
  std::vector<fs::path> removed;
  for (const auto& entry : entries) {
    if (kept < keep) {
      // The one that all else is given up for is read in full; for the others their size and
      // headers will do.
      const auto reader = kept > 0 ? open_named(entry) : open_whole(entry, {});
      if (!reader && !is_damage(reader.error())) return fail(reader.error());
      kept += reader.has_value();
      continue;
    }
    // What cannot be read may be worth mending.
    if (!open_named(entry)) continue;
    const fs::path aside = removing_name(entry.path);
    const auto renamed = disk_.rename(entry.path, aside);
    std::error_code code;
    if (!renamed && !fs::exists(entry.path, code)) continue;  // another writer was quicker
    TESON_TRY_VOID(renamed);
    removed.push_back(entry.path);
    TESON_TRY_VOID(remove_tree(disk_, aside));
  }
  if (!removed.empty()) TESON_TRY_VOID(disk_.sync_folder(root_));
  return removed;
}

Result<std::vector<fs::path>> CheckpointStore::clean_stale() const {
  std::vector<fs::path> stale;
  std::error_code code;
  for (fs::directory_iterator at(root_, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(partial_prefix) || name.starts_with(removing_prefix))
      stale.push_back(at->path());
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    return fail_errno(fmt::format("list '{}'", root_.string()), code.value());
  }
  std::vector<fs::path> removed;
  for (const auto& path : stale) {
    fs::path doomed = path;
    Fd lock;
    if (path.filename().string().starts_with(partial_prefix)) {
      if (!is_abandoned(path, lock)) continue;
      doomed = removing_name(path);
      TESON_TRY_VOID(disk_.rename(path, doomed));
    }
    TESON_TRY_VOID(remove_tree(disk_, doomed));
    removed.push_back(path);
  }
  return removed;
}

}  // namespace teson
