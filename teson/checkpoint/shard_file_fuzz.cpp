#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "teson/base/hash.h"
#include "teson/checkpoint/shard_file.h"

/// A page with its checksum put right, so that the fields behind it are reached.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)teson::decode_shard_header(std::as_bytes(std::span(data, size)));
  std::array<std::byte, teson::shard_header_bytes> page{};
  std::memcpy(page.data(), "TESONSHD", 8);
  if (size > 0) std::memcpy(page.data() + 8, data, std::min(size, page.size() - 16));
  const std::uint64_t hash = teson::hash64(std::span(page).first(page.size() - 8));
  std::memcpy(page.data() + page.size() - 8, &hash, sizeof hash);
  (void)teson::decode_shard_header(page);
  return 0;
}
