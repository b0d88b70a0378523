#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/checkpoint/meta.h"
#include "teson/checkpoint/shard_file.h"

namespace teson {

inline constexpr std::string_view manifest_file_name = "manifest.json";
inline constexpr std::size_t manifest_bytes_max = 256U << 20;
inline constexpr std::size_t sections_max = 64;
inline constexpr std::size_t parameters_max = 1U << 20;

/// One file of a section, as the manifest names it.
struct ManifestShard {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  bool operator==(const ManifestShard&) const = default;
};

struct ManifestSection {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<ManifestShard> shards;
  bool operator==(const ManifestSection&) const = default;
};

/// What a checkpoint folder holds; written last, so that a folder with one was complete when it was
/// written.
struct Manifest {
  CheckpointMeta meta;
  std::uint32_t block_bytes = 0;
  std::vector<ManifestSection> sections;
  bool operator==(const Manifest&) const = default;

  const ManifestSection* find(std::string_view section) const;
};

/// Cuts a section of `bytes` into files of at most `shard_bytes`; checksums are still 0.
ManifestSection plan_section(std::string_view name, std::uint64_t bytes, std::uint64_t shard_bytes);
/// The header that file `index` of a section must have.
ShardHeader expected_header(const Manifest& manifest, const ManifestSection& section,
                            std::uint32_t index);

/// Bounds and agreement of the parts: shards tile their section, parameters lie inside the largest
/// section, names are unique.
Result<void> validate(const Manifest& manifest);

/// `{"checkpoint":{…},"checksum":"…"}` and a line feed; the checksum is XXH3-64 over the bytes of
/// the inner object.
Result<std::string> encode_manifest(const Manifest& manifest);
/// Survives any bytes. Checks the checksum first, then every field; the error names the field.
Result<Manifest> decode_manifest(std::string_view text);
/// The inner object alone, without its checksum.
Result<Manifest> decode_manifest_body(std::string_view json);

}  // namespace teson
