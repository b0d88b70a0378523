#include "teson/job/nearest.h"

#include <algorithm>

namespace teson::job {
namespace {

constexpr std::size_t kWordBytesMax = 256;

std::string_view last_part(std::string_view key) {
  return key.substr(key.rfind('.') == std::string_view::npos ? 0 : key.rfind('.') + 1);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, kWordBytesMax);
  std::string best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const bool same_end = last_part(word) == last_part(candidate);
    const std::size_t distance = same_end ? std::min<std::size_t>(1, edit_distance(word, candidate))
                                          : edit_distance(word, candidate);
    const bool near = same_end || 3 * distance <= std::max(word.size(), candidate.size());
    if (near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  // A bare key without its table: compare with what stands after the dot.
  if (best.empty() && word.find('.') == std::string_view::npos) {
    for (const std::string& candidate : candidates) {
      const std::size_t distance = edit_distance(word, last_part(candidate));
      if (3 * distance > word.size()) continue;
      if (best.empty() || distance < best_distance) {
        best = candidate;
        best_distance = distance;
      }
    }
  }
  return best;
}

}  // namespace teson::job
