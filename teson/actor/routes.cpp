#include "teson/actor/routes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/net/frame.h"

namespace teson::actor::detail {

namespace {

/// Procs that have ended and whose end can still be told to those who have a reference.
constexpr std::size_t ends_kept = 100;
/// What may be sent to a process before it has attached over the network.
constexpr std::size_t held_back_max = 16384;
constexpr std::size_t held_back_bytes_max = std::size_t{256} << 20;

Result<void> send_on(net::Channel& channel, Kind kind, net::Payload payload, std::uint64_t peer) {
  return channel.send(static_cast<std::uint16_t>(kind), std::move(payload), peer);
}

}  // namespace

void Routes::expect(std::uint64_t proc, std::string where, std::shared_ptr<CallCount> unanswered) {
  std::lock_guard lock(mutex_);
  expected_[proc] = {.where = std::move(where), .unanswered = std::move(unanswered)};
}

void Routes::add(std::uint64_t proc, Route added) {
  auto route = std::make_shared<const Route>(std::move(added));
  std::lock_guard lock(mutex_);
  if (const auto found = expected_.find(proc); found != expected_.end()) {
    for (auto& [kind, payload, from] : found->second.held)
      (void)send_on(*route->channel, kind, std::move(payload), from);
    expected_.erase(found);
  }
  routes_[proc] = std::move(route);
}

std::set<std::uint64_t> Routes::remove(std::uint64_t proc, std::optional<Error> why) {
  std::shared_ptr<const Route> dropped;  // ends after the lock
  Expected forgotten;
  std::set<std::uint64_t> senders;
  std::lock_guard lock(mutex_);
  if (why) ends_.emplace_back(proc, std::move(*why));
  if (ends_.size() > ends_kept) ends_.pop_front();
  if (auto expected = expected_.extract(proc)) forgotten = std::move(expected.mapped());
  if (auto found = routes_.extract(proc)) dropped = std::move(found.mapped());
  if (auto found = senders_.extract(proc)) senders = std::move(found.mapped());
  for (auto& [receiver, others] : senders_)
    others.erase(proc);
  return senders;
}

void Routes::clear() {
  // The channels go outside the lock: their end waits for the loop, which may be delivering to us.
  decltype(routes_) routes;
  decltype(expected_) expected;
  std::lock_guard lock(mutex_);
  routes.swap(routes_);
  expected.swap(expected_);
}

Routes::Way Routes::way_locked(std::uint64_t proc) const {
  if (const auto found = routes_.find(proc); found != routes_.end()) return {found->second, 0};
  if (self_ == owner_proc || proc == self_) return {};
  const auto ended = [proc](const auto& end) { return end.first == proc; };
  const auto owner = routes_.find(owner_proc);
  if (owner == routes_.end() || std::ranges::any_of(ends_, ended)) return {};
  return {owner->second, proc};
}

Routes::Way Routes::to(std::uint64_t proc) const {
  std::lock_guard lock(mutex_);
  return way_locked(proc);
}

Result<void> Routes::send(std::uint64_t proc, Kind kind, net::Payload payload, std::uint64_t from) {
  return send(proc, {kind, std::move(payload), from}, false);
}

Result<void> Routes::send_call(std::uint64_t proc, net::Payload payload) {
  return send(proc, {Kind::call, std::move(payload), owner_proc}, true);
}

Result<void> Routes::send(std::uint64_t proc, Held message, bool call) {
  std::unique_lock lock(mutex_);
  const Way way = way_locked(proc);
  const auto expected = expected_.find(proc);
  if (!way && expected == expected_.end()) return fail(gone_locked(proc));
  if (message.from != owner_proc) {
    if (way && way.route->is_private) {
      return fail(ErrorKind::invalid,
                  fmt::format("{} speaks with its owner alone", way.route->where));
    }
    // Not of a number that somebody has made up.
    if (routes_.contains(message.from)) senders_[proc].insert(message.from);
  }
  // The owner counts none that a process sends through it.
  std::shared_ptr<CallCount> count;
  if (call) count = way ? way.route->unanswered : expected->second.unanswered;
  Result<void> sent;
  if (way) {
    lock.unlock();
    sent = send_on(*way.route->channel, message.kind, std::move(message.payload),
                   message.from | way.peer);
  } else {
    sent = hold_back(expected->second, std::move(message));
  }
  if (sent && count) ++*count;
  return sent;
}

Result<void> Routes::hold_back(Expected& expected, Held held) {
  // As the channel counts that is to take it all.
  const std::size_t bytes = net::frame_header_bytes + held.payload.size();
  if (expected.held.size() >= held_back_max || expected.bytes + bytes > held_back_bytes_max) {
    return fail(ErrorKind::overloaded,
                fmt::format("{} messages, {} bytes wait for {}; try later", expected.held.size(),
                            expected.bytes, expected.where));
  }
  expected.bytes += bytes;
  expected.held.push_back(std::move(held));
  return {};
}

std::string Routes::where(std::uint64_t proc) const {
  if (proc == self_) return "this process";
  std::lock_guard lock(mutex_);
  if (const auto found = routes_.find(proc); found != routes_.end()) return found->second->where;
  if (const auto found = expected_.find(proc); found != expected_.end()) return found->second.where;
  return fmt::format("process {} of this System", proc);
}

Error Routes::gone(std::uint64_t proc) const {
  std::lock_guard lock(mutex_);
  return gone_locked(proc);
}

Error Routes::gone_locked(std::uint64_t proc) const {
  for (const auto& [ended, why] : ends_) {
    if (ended == proc) return why;
  }
  return {ErrorKind::disconnected,
          fmt::format("process {} of this System is gone, or there was none of this number", proc)};
}

}  // namespace teson::actor::detail
