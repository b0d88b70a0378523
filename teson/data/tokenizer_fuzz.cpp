#include <cstddef>
#include <cstdint>
#include <string_view>

#include "teson/base/check.h"
#include "teson/data/bpe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto parsed = teson::data::Tokenizer::parse(text, "fuzz"))
    TESON_CHECK(parsed->to_json() == text);
  static const auto tokenizer =
      teson::data::Tokenizer::make({.merges = {{101, 32}, {32, 116}, {257, 104}}});
  TESON_CHECK(*tokenizer->decode(tokenizer->encode(text)) == text);
  return 0;
}
