#include "teson/actor/relays.h"

#include <iterator>
#include <utility>

#include "teson/actor/host_link.h"
#include "teson/actor/node.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/runtime.h"

namespace teson::actor::detail {

namespace {

/// What may be on its way through an agent; what is beyond goes to each process itself.
constexpr std::size_t in_flight_max = 32;
constexpr std::size_t in_flight_bytes_max = std::size_t{256} << 20;

}  // namespace

void Relays::send(Procs procs, const net::Payload& call, const Sent& sent) {
  std::map<HostLink*, std::vector<std::size_t>> by_host;
  std::vector<std::size_t> others;
  const bool large = procs.size() > 1 && call.size() >= runtime_.options.relay_bytes_min;
  for (std::size_t i = 0; i < procs.size(); ++i) {
    if (!procs[i]) continue;
    const auto host = large && procs[i]->attached() ? procs[i]->host_link() : nullptr;
    if (host && host->relays_to(procs[i]->id())) {
      by_host[host.get()].push_back(i);
    } else {
      sent(i, procs[i]->send(Kind::call, call));
    }
  }
  for (const auto& [host, places] : by_host) {
    if (places.size() > 1 && relay(*host, procs, places, call, sent)) continue;
    for (const std::size_t i : places)
      sent(i, procs[i]->send(Kind::call, call));
  }
}

bool Relays::relay(HostLink& host, Procs procs, std::span<const std::size_t> places,
                   const net::Payload& call, const Sent& sent) {
  HostRelay relay{.call = call.bytes()};
  {
    std::lock_guard lock(mutex_);
    if (!has_room(host, call.size())) return false;
    relay.number = next_++;
    relay.procs =
        announce(procs, places, {relay.number, call.size(), header_of(call.text())}, sent);
    if (relay.procs.empty()) return true;
    in_flight_[relay.number] = {
        .call = call, .procs = {relay.procs.begin(), relay.procs.end()}, .host = &host};
    Load& load = loads_[&host];
    ++load.calls;
    load.bytes += call.size();
  }
  if (host.relay(relay)) return true;
  for (const std::uint64_t proc : relay.procs)
    repair(proc);
  return true;
}

std::vector<std::uint64_t> Relays::announce(Procs procs, std::span<const std::size_t> places,
                                            const Announced& call, const Sent& sent) {
  const net::Payload announced(net::encode(call));
  std::vector<std::uint64_t> told;
  for (const std::size_t i : places) {
    auto said = procs[i]->send(Kind::announced, announced);
    if (said) {
      told.push_back(procs[i]->id());
      if (runtime_.node.trace_ring().on())
        runtime_.node.trace_ring().sent(procs[i]->id(), call.header);
    }
    sent(i, std::move(said));
  }
  return told;
}

bool Relays::has_room(const HostLink& host, std::size_t bytes) const {
  const auto load = loads_.find(&host);
  return load == loads_.end() ||
         (load->second.calls < in_flight_max && load->second.bytes + bytes <= in_flight_bytes_max);
}

void Relays::taken(std::uint64_t proc, std::uint64_t number) {
  net::Payload dropped;  // ends after the lock
  std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(number);
  if (found == in_flight_.end()) return;
  dropped = found->second.call;
  remove(found, proc);
}

void Relays::repair(std::uint64_t proc) {
  const auto way = runtime_.node.routes().to(proc);
  std::lock_guard lock(mutex_);
  for (auto one = in_flight_.begin(); one != in_flight_.end();) {
    if (way && one->second.procs.contains(proc)) {
      way.route->channel->send_note(static_cast<std::uint16_t>(Kind::relayed), one->second.call,
                                    one->first);
    }
    one = remove(one, proc);
  }
}

void Relays::forget(std::uint64_t proc) {
  std::lock_guard lock(mutex_);
  for (auto one = in_flight_.begin(); one != in_flight_.end();)
    one = remove(one, proc);
}

Relays::InFlights::iterator Relays::remove(InFlights::iterator one, std::uint64_t proc) {
  one->second.procs.erase(proc);
  if (!one->second.procs.empty()) return std::next(one);
  const auto load = loads_.find(one->second.host);
  load->second.bytes -= one->second.call.size();
  if (--load->second.calls == 0) loads_.erase(load);
  return in_flight_.erase(one);
}

std::size_t Relays::in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_.size();
}

}  // namespace teson::actor::detail
