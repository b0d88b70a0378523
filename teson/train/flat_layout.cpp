#include "teson/train/flat_layout.h"

#include <algorithm>
#include <utility>

#include "teson/base/check.h"

namespace teson::train {

void FlatLayout::add(std::string name, std::vector<std::int64_t> shape, bool decay) {
  std::int64_t count = 1;
  for (std::int64_t size : shape)
    count *= size;
  TESON_CHECK(count > 0, name, count);
  TESON_CHECK(find(name) == nullptr, name);
  const std::int64_t offset = elements;
  for (std::int64_t begin = 0; begin < count; begin += kFlatBlock)
    blocks.push_back({offset + begin, offset + std::min(count, begin + kFlatBlock), decay});
  entries.push_back({std::move(name), offset, count, std::move(shape), decay});
  elements = (offset + count + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

const FlatEntry* FlatLayout::find(const std::string& name) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const FlatEntry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace teson::train
