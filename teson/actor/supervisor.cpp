#include "teson/actor/supervisor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace teson::actor {

std::string GivenUp::describe() const {
  return fmt::format("mesh '{}' is given up, {}; the last: {}", mesh, why, exit.describe(mesh));
}

namespace detail {

Supervisor::Supervisor(Mesh& mesh, Supervision supervision, const Clock& clock)
    : mesh_(mesh), supervision_(std::move(supervision)), budget_(supervision_.restarts, clock) {}

void Supervisor::ended(const ProcExit& exit) {
  if (supervision_.on_exit) supervision_.on_exit(exit);
  // One that was replaced since is history.
  if (given_up_ || exit.incarnation != mesh_.incarnation(exit.rank)) return;
  if (supervision_.strategy == Strategy::escalate) return give_up(exit, "as its strategy says");
  Round round = round_of(exit);
  const auto waiting = rounds_.find(key_of(exit.rank));
  if (waiting == rounds_.end()) return begin(std::move(round));
  // Part of the restart that is on its way.
  Round& wider = waiting->second;
  for (std::size_t rank = round.first; rank < wider.first; ++rank)
    mesh_.end(rank);
  wider.first = std::min(wider.first, round.first);
}

Supervisor::Round Supervisor::round_of(const ProcExit& exit) const {
  const std::size_t end = mesh_.size() - 1;
  switch (supervision_.strategy) {
    case Strategy::rest_for_one:
      return {exit.rank, end, exit};
    case Strategy::all_for_one:
      return {0, end, exit};
    default:
      return {exit.rank, exit.rank, exit};
  }
}

std::size_t Supervisor::key_of(std::size_t rank) const {
  return supervision_.strategy == Strategy::one_for_one ? rank : 0;
}

void Supervisor::begin(Round round) {
  const std::size_t key = key_of(round.cause.rank);
  const auto delay = budget_.next(key);
  if (!delay) {
    const auto window =
        std::chrono::duration_cast<std::chrono::seconds>(supervision_.restarts.window);
    return give_up(round.cause, fmt::format("restarted {} times within {} s",
                                            supervision_.restarts.restarts_max, window.count()));
  }
  for (std::size_t rank = round.first; rank <= round.last; ++rank) {
    if (rank != round.cause.rank) mesh_.end(rank);
  }
  rounds_.insert_or_assign(key, std::move(round));
  mesh_.later(key, *delay, [self = weak_from_this(), key] {
    if (const auto supervisor = self.lock()) supervisor->restart(key);
  });
}

void Supervisor::restart(std::size_t key) {
  const auto waiting = rounds_.extract(key);
  if (waiting.empty()) return;
  const Round& round = waiting.mapped();
  std::vector<std::size_t> ranks;
  for (std::size_t rank = round.first; rank <= round.last; ++rank) {
    const auto replaced = mesh_.replace(rank);
    if (replaced) {
      ranks.push_back(rank);
    } else if (replaced.error().kind == ErrorKind::aborted) {
      return;  // the mesh was stopped meanwhile
    } else if (budget_.used(key) < supervision_.restarts.restarts_max) {
      return begin(round);
    } else {
      return give_up(round.cause,
                     "it cannot be started again (" + replaced.error().describe() + ")");
    }
  }
  if (supervision_.on_restart) supervision_.on_restart(ranks);
}

void Supervisor::give_up(const ProcExit& exit, const std::string& why) {
  given_up_ = true;
  const GivenUp given_up{mesh_.name(), exit, why};
  if (supervision_.on_give_up) return supervision_.on_give_up(given_up);
  mesh_.unhandled(given_up.describe());
}

}  // namespace detail
}  // namespace teson::actor
