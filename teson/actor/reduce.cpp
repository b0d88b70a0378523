#include "teson/actor/reduce.h"

#include <algorithm>

#include <fmt/format.h>

namespace teson::actor::detail {

Error ranks_failed(std::size_t size, std::vector<RankError> failures) {
  std::sort(failures.begin(), failures.end(),
            [](const RankError& a, const RankError& b) { return a.rank < b.rank; });
  std::string text = fmt::format("{} of {} ranks failed:", failures.size(), size);
  for (const auto& [rank, error] : failures)
    text += fmt::format("{} rank {}: {}", rank == failures.front().rank ? "" : ";", rank,
                        error.describe());
  return {failures.empty() ? ErrorKind::failed : failures.front().error.kind, std::move(text)};
}

}  // namespace teson::actor::detail
