#include "teson/actor/relays.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "teson/actor/announced.h"
#include "teson/actor/host_link.h"
#include "teson/actor/node.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"

namespace teson::actor::detail {

namespace {

/// How long a process may take to have what its agent's machine has.
constexpr Duration patience = std::chrono::seconds(5);
constexpr Duration look_interval = std::chrono::seconds(1);
/// How often that may be in a row: it may be busy, or not have started yet. Then nothing more is
/// given to it through the agent.
constexpr int late_max = 3;

static_assert(AnnouncedCalls::early_max > Relays::in_flight_max);

}  // namespace

void Relays::send(Procs procs, const net::Payload& call, const Sent& sent) {
  std::vector<std::pair<HostLink*, std::vector<std::size_t>>> by_host;
  const bool large = procs.size() > 1 && call.size() >= runtime_.options.relay_bytes_min;
  for (std::size_t i = 0; i < procs.size(); ++i) {
    if (!procs[i]) continue;
    HostLink* const host = large && procs[i]->attached() ? procs[i]->host_link().get() : nullptr;
    if (host == nullptr || !host->relays_to(procs[i]->id())) {
      sent(i, procs[i]->send(Kind::call, call));
      continue;
    }
    const auto found =
        std::ranges::find(by_host, host, &std::pair<HostLink*, std::vector<std::size_t>>::first);
    (found != by_host.end() ? *found : by_host.emplace_back(host, std::vector<std::size_t>()))
        .second.push_back(i);
  }
  for (const auto& [host, places] : by_host) {
    if (places.size() > 1 && relay(*host, procs, places, call, sent)) continue;
    for (const std::size_t i : places)
      sent(i, procs[i]->send(Kind::call, call));
  }
}

bool Relays::relay(HostLink& host, Procs procs, std::span<const std::size_t> places,
                   const net::Payload& call, const Sent& sent) {
  const CallHeader header = header_of(call.text());
  std::vector<Result<void>> announced;
  RelayTo to;
  {
    // Numbers rise in each process in the order of their announcements.
    std::lock_guard lock(mutex_);
    if (!has_room(host, call.size())) return false;
    to.number = next_++;
    const net::Payload place(net::encode(Announced{to.number, call.size(), header}));
    for (const std::size_t i : places) {
      announced.push_back(procs[i]->send(Kind::announced, place));
      if (announced.back()) to.procs.push_back(procs[i]->id());
    }
    if (!to.procs.empty()) {
      in_flight_[to.number] = {
          .call = call, .procs = {to.procs.begin(), to.procs.end()}, .host = &host};
      Load& load = loads_[&host];
      ++load.calls;
      load.bytes += call.size();
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (announced[i] && runtime_.node.trace_ring().on())
      runtime_.node.trace_ring().sent(procs[places[i]]->id(), header);
    sent(places[i], std::move(announced[i]));
  }
  if (to.procs.empty()) return true;
  const auto bytes = host.relay(to, call);
  if (!bytes) {
    send_again(to.number);
    return true;
  }
  std::lock_guard lock(mutex_);
  if (const auto found = in_flight_.find(to.number); found != in_flight_.end())
    found->second.sent = *bytes;
  if (!std::exchange(looking_, true)) runtime_.loop.post([this] { look(); });
  return true;
}

bool Relays::has_room(const HostLink& host, std::size_t bytes) const {
  const auto load = loads_.find(&host);
  if (load == loads_.end()) return bytes <= call_bytes_max;
  return load->second.calls < in_flight_max && load->second.bytes + bytes <= in_flight_bytes_max;
}

void Relays::taken(std::uint64_t proc, std::uint64_t number) {
  std::vector<net::Payload> ended;  // after the lock
  std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(number);
  if (found == in_flight_.end()) return;
  late_.erase(proc);
  remove(found, proc, ended);
}

void Relays::repair(std::uint64_t proc) {
  std::vector<net::Payload> ended;
  std::vector<Again> again;
  {
    std::lock_guard lock(mutex_);
    for (auto one = in_flight_.begin(); one != in_flight_.end();) {
      if (one->second.procs.contains(proc)) again.push_back({proc, one->first, one->second.call});
      one = remove(one, proc, ended);
    }
  }
  send_again(std::move(again));
}

void Relays::forget(std::uint64_t proc) {
  std::vector<net::Payload> ended;
  std::lock_guard lock(mutex_);
  late_.erase(proc);
  for (auto one = in_flight_.begin(); one != in_flight_.end();)
    one = remove(one, proc, ended);
}

Relays::InFlights::iterator Relays::remove(InFlights::iterator one, std::uint64_t proc,
                                           std::vector<net::Payload>& ended) {
  one->second.procs.erase(proc);
  if (!one->second.procs.empty()) return std::next(one);
  const auto load = loads_.find(one->second.host);
  load->second.bytes -= one->second.call.size();
  if (--load->second.calls == 0) loads_.erase(load);
  ended.push_back(std::move(one->second.call));
  return in_flight_.erase(one);
}

void Relays::send_again(std::uint64_t number) {
  std::vector<Again> again;
  {
    std::lock_guard lock(mutex_);
    const auto found = in_flight_.find(number);
    if (found == in_flight_.end()) return;
    for (const std::uint64_t proc : found->second.procs)
      again.push_back({proc, number, found->second.call});
  }
  send_again(std::move(again));
}

void Relays::send_again(std::vector<Again> calls) {
  if (calls.empty()) return;
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  if (!again_) again_ = std::make_unique<SerialThread>("teson-relays");
  again_->post([this, calls = std::move(calls)] {
    for (const Again& one : calls) {
      if (const auto way = runtime_.node.routes().to(one.proc)) {
        way.route->channel->send_note(static_cast<std::uint16_t>(Kind::relayed), one.call,
                                      one.number);
      }
    }
  });
}

void Relays::look() {
  std::map<std::uint64_t, HostLink*> late;
  const Instant instant = now();
  {
    std::lock_guard lock(mutex_);
    looking_ = !in_flight_.empty();
    if (!looking_) return;
    for (auto& [number, one] : in_flight_) {
      // A cut may take back what had come.
      if (one.sent == 0 || one.host->received() < one.sent) {
        one.arrived.reset();
      } else if (!one.arrived) {
        one.arrived = instant;
      } else if (instant - *one.arrived >= patience) {
        for (const std::uint64_t proc : one.procs)
          late[proc] = one.host;
      }
    }
    for (auto& [proc, host] : late) {
      if (++late_[proc] < late_max) host = nullptr;
    }
  }
  for (const auto& [proc, host] : late) {
    if (host != nullptr) host->out_of_reach(proc);
    repair(proc);
  }
  timer_ = runtime_.loop.after(look_interval, [this] { look(); });
}

void Relays::stop() {
  std::unique_ptr<SerialThread> again;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    again = std::move(again_);
  }
  again.reset();
  runtime_.loop.run([this] { timer_.cancel(); });
}

}  // namespace teson::actor::detail
