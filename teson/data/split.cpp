#include <algorithm>
#include <cmath>
#include <limits>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/data/corpus.h"
#include "teson/data/utf8.h"

namespace teson::data {

DocumentHash hash_document(std::string_view text) {
  return {.split = hash64(text, 0x7e50'5901), .other = hash64(text, 0x7e50'5902)};
}

SplitRule split_rule(std::vector<DocumentSize> documents, double fraction) {
  TESON_CHECK(fraction >= 0 && fraction <= 0.5, fraction);
  SplitRule rule{.threshold = static_cast<std::uint64_t>(std::ldexp(fraction, 64))};
  if (fraction == 0 || documents.empty()) return rule;
  std::sort(documents.begin(), documents.end(), [](const DocumentSize& a, const DocumentSize& b) {
    return a.hash.split < b.hash.split;
  });
  double wanted = 0;
  for (const DocumentSize& document : documents)
    wanted += static_cast<double>(document.bytes) * fraction / 2;
  double held = 0;
  for (const DocumentSize& document : documents) {
    if (document.hash.split >= rule.threshold) {
      if (held >= wanted) break;
      if (document.hash.split == std::numeric_limits<std::uint64_t>::max()) break;
      rule.threshold = document.hash.split + 1;
    }
    held += static_cast<double>(document.bytes);
  }
  rule.threshold = std::min(rule.threshold, documents.back().hash.split);
  return rule;
}

std::size_t split_point(std::string_view text, double fraction) {
  const auto tail =
      static_cast<std::size_t>(std::ceil(static_cast<double>(text.size()) * fraction));
  if (tail == 0) return text.size();
  const std::size_t latest = text.size() - std::min(tail, text.size());
  if (latest > 0) {
    const std::size_t line_end = text.rfind('\n', latest - 1);
    if (line_end != std::string_view::npos && line_end >= text.size() / 4) return line_end + 1;
  }
  return character_boundary(text, latest);
}

}  // namespace teson::data
