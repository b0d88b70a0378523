#include <cstring>

#include "teson/base/check.h"
#include "teson/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::net;
  if (size < frame_header_bytes) return 0;
  FrameHeaderBytes bytes;
  std::memcpy(bytes.data(), data, bytes.size());
  const auto header = decode_frame_header(bytes, 1 << 20);
  if (header) TESON_CHECK(encode_frame_header(*header) == bytes);
  return 0;
}
