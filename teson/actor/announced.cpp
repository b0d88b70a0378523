#include "teson/actor/announced.h"

#include <utility>

#include <fmt/format.h>

#include "teson/base/log.h"

namespace teson::actor::detail {

Result<std::optional<net::Buffer>> AnnouncedCalls::announce(const Announced& call) {
  if (call.number <= last_) {
    return fail(ErrorKind::invalid,
                fmt::format("a call was announced as number {}, expected one above {}", call.number,
                            last_));
  }
  last_ = call.number;
  // Those in between went to others.
  early_.erase(early_.begin(), early_.lower_bound(call.number));
  if (auto early = early_.extract(call.number)) return std::move(early.mapped());
  awaited_.emplace(call.number, call);
  return std::nullopt;
}

std::optional<Announced> AnnouncedCalls::arrive(std::uint64_t number, net::Buffer& call) {
  if (auto awaited = awaited_.extract(number)) return awaited.mapped();
  if (number <= last_) return std::nullopt;
  if (early_.size() >= early_max) {
    log_error("actor", "more than {} calls have come that were not announced: one is dropped",
              early_max);
  } else {
    early_.emplace(number, std::move(call));
  }
  return std::nullopt;
}

}  // namespace teson::actor::detail
