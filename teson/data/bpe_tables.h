#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "teson/data/bpe.h"

namespace teson::data {

inline constexpr TokenId kNoToken = UINT32_MAX;

inline std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(left) << 32 | right;
}

/// Lets maps of strings be asked with views.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

struct PairHash {
  std::size_t operator()(std::uint64_t key) const {
    key ^= key >> 29;
    key *= 0x9E37'79B9'7F4A'7C15ULL;
    return key ^ key >> 32;
  }
};

/// What copies of a Tokenizer share.
struct Tokenizer::Tables {
  BpeModel model;
  std::vector<std::string> bytes;  ///< of every token, specials by name
  std::unordered_map<std::uint64_t, TokenId, PairHash>
      merge_of;  ///< pair_key -> the token it becomes
  std::string fingerprint;
  TokenId end_of_text = kNoToken;

  std::size_t ordinary() const { return 256 + model.merges.size(); }
  TokenId merged(TokenId left, TokenId right) const {
    const auto found = merge_of.find(pair_key(left, right));
    return found == merge_of.end() ? kNoToken : found->second;
  }
};

}  // namespace teson::data
