#include "teson/actor/restart_budget.h"

#include <algorithm>

#include "teson/base/random.h"

namespace teson::actor {

std::optional<Duration> RestartBudget::next(std::size_t rank) {
  auto& restarts = recent(rank);
  if (restarts.size() >= policy_.restarts_max) return std::nullopt;
  const std::size_t before = restarts.size();
  restarts.push_back(clock_.now());
  if (before == 0) return Duration::zero();
  Duration delay = policy_.backoff_first;
  for (std::size_t i = 1; i < before && delay < policy_.backoff_max; ++i)
    delay *= 2;
  delay = std::min(delay, policy_.backoff_max);
  const double stretch =
      1.0 + policy_.jitter * CounterRandom({policy_.seed, rank, draws_++}).uniform();
  return std::chrono::duration_cast<Duration>(delay * stretch);
}

std::size_t RestartBudget::used(std::size_t rank) {
  return recent(rank).size();
}

std::deque<Instant>& RestartBudget::recent(std::size_t rank) {
  auto& restarts = restarts_[rank];
  while (!restarts.empty() && clock_.now() - restarts.front() > policy_.window)
    restarts.pop_front();
  return restarts;
}

}  // namespace teson::actor
