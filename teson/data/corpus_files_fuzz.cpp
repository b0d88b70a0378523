#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "teson/base/check.h"
#include "teson/data/json_lines.h"
#include "teson/data/prepare.h"
#include "teson/data/token_shards.h"

/// Shard header, manifest, and a JSON line of a corpus.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto header = decode_shard_header(std::as_bytes(std::span(data, size)), "fuzz")) {
    TESON_CHECK(encode_shard_header(*header) == text.substr(0, ShardHeader::kBytes));
  }
  if (const auto manifest = decode_manifest(text, "fuzz"))
    TESON_CHECK(encode_manifest(*manifest) == text);
  (void)text_of_json_line(text, "text");
  return 0;
}
