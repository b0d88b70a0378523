#include <cstdint>
#include <string_view>

#include "teson/checkpoint/manifest.h"

/// The body is tried without its checksum too, or no input would come past it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)teson::decode_manifest(text);
  (void)teson::decode_manifest_body(text);
  return 0;
}
