#include "teson/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace teson::model {

Result<void> validate(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return fail(ErrorKind::invalid,
                fmt::format("temperature is {}; expected 0 or more", options.temperature));
  if (options.top_k < 0)
    return fail(ErrorKind::invalid,
                fmt::format("top-k is {}; expected 0 (all) or more", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    return fail(ErrorKind::invalid,
                fmt::format("top-p is {}; expected more than 0, at most 1", options.top_p));
  return {};
}

Result<std::int64_t> sample_token(std::span<const float> logits, const SamplingOptions& options,
                                  double uniform) {
  TESON_TRY_VOID(validate(options));
  const auto best = std::max_element(logits.begin(), logits.end());
  const bool broken =
      std::any_of(logits.begin(), logits.end(), [](float value) { return std::isnan(value); });
  if (best == logits.end() || broken || !std::isfinite(*best))
    return fail(
        ErrorKind::failed,
        "the model's output is not a number: its weights are broken; use an earlier checkpoint");
  if (options.temperature == 0) return best - logits.begin();

  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::size_t kept = logits.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
                    });

  std::vector<double> cumulative(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i)
    cumulative[i] = total +=
        std::exp((static_cast<double>(logit(order[i])) - *best) / options.temperature);
  const auto reach = [&](double mass, std::size_t count) {
    const auto end = cumulative.begin() + static_cast<std::ptrdiff_t>(count);
    return static_cast<std::size_t>(std::lower_bound(cumulative.begin(), end, mass) -
                                    cumulative.begin());
  };
  if (options.top_p < 1) kept = std::min(kept, reach(options.top_p * total, kept) + 1);
  const double mass = std::nextafter(uniform * cumulative[kept - 1], cumulative[kept - 1]);
  return order[std::min(reach(mass, kept), kept - 1)];
}

}  // namespace teson::model
