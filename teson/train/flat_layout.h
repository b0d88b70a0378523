#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace teson::train {

/// Where one parameter lies in flat storage. All numbers are elements, not bytes.
struct FlatEntry {
  std::string name;
  std::int64_t offset = 0;  ///< a multiple of kFlatAlignment
  std::int64_t elements = 0;
  std::vector<std::int64_t> shape;
  bool decay = false;  ///< weight decay applies

  bool operator==(const FlatEntry&) const = default;
};

/// Each parameter starts at a multiple of 16 floats (64 bytes, a cache line), and the total is one
/// too.
inline constexpr std::int64_t kFlatAlignment = 16;

/// Blocks in which element-wise work is dealt to threads and sums are taken. Part of the
/// arithmetic: changing it changes the bits of the gradient norm.
inline constexpr std::int64_t kFlatBlock = 64 * 1024;

/// A piece of one parameter: elements [begin, end) of flat storage. Blocks are counted from each
/// parameter's start, so they do not depend on where it lies.
struct FlatBlock {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decay = false;

  bool operator==(const FlatBlock&) const = default;
};

/// The table of flat storage: weights, gradients and both moments all have it. The gaps between
/// parameters hold zeros in each of them, always.
struct FlatLayout {
  std::vector<FlatEntry> entries;  ///< in the model's order of parameters
  std::vector<FlatBlock> blocks;   ///< in the order of entries; none crosses into another parameter
  std::int64_t elements = 0;       ///< of the whole storage, gaps included

  /// Appends a parameter at the next aligned offset.
  void add(std::string name, std::vector<std::int64_t> shape, bool decay);
  /// The entry of that name, or null.
  const FlatEntry* find(const std::string& name) const;
};

}  // namespace teson::train
