#include "teson/comm/group_connect.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "teson/comm/frames.h"
#include "teson/comm/greeting.h"
#include "teson/comm/handshake_link.h"
#include "teson/net/frame.h"

namespace teson::comm {
namespace {

/// While a higher rank has not come, its listener is looked at in these intervals: a refused
/// connection means that it is dead.
constexpr Duration probe_interval_min = std::chrono::milliseconds(50);
constexpr Duration probe_interval_max = std::chrono::seconds(1);
constexpr Duration probe_time_max = std::chrono::milliseconds(20);

class GroupConnect {
 public:
  GroupConnect(const GroupOptions& group, const HostTransportOptions& transport, Acceptor& acceptor,
               int cancel_fd)
      : group_(group),
        transport_(transport),
        acceptor_(acceptor),
        cancel_fd_(cancel_fd),
        deadline_(clock_.now() + group.connect_timeout),
        peers_(group.addresses.size()) {}

  Result<std::vector<net::Socket>> run();

 private:
  struct Peer {
    std::optional<HandshakeLink> link;  ///< handshake under way
    net::Socket socket;                 ///< after it
    std::vector<std::byte> notice;      ///< bytes of the acceptor's answer so far
    bool ready = false;
    bool watched = true;  ///< once ready: its end has not been seen
  };

  Result<void> connect_lower();
  Result<void> claim_arrivals();
  Result<void> claim(Arrival arrival);
  Result<void> progress(std::size_t rank);
  Result<void> read_notice(std::size_t rank);
  Result<void> check_instance(std::size_t rank, std::uint64_t instance) const;
  Result<void> probe_missing();
  Result<void> wait();
  Result<void> dispatch(const std::vector<pollfd>& polled);
  bool ended_silently(std::size_t rank);
  Failure lost(std::size_t rank, Error error) const;
  Failure timed_out() const;
  bool all_ready() const {
    return std::ranges::count_if(peers_, [](const Peer& peer) { return peer.ready; }) + 1 ==
           std::ssize(peers_);
  }
  std::size_t own() const { return static_cast<std::size_t>(group_.rank); }
  std::string name(std::size_t rank) const {
    return fmt::format("rank {} ({})", rank, group_.addresses[rank].to_string());
  }

  const GroupOptions& group_;
  const HostTransportOptions& transport_;
  Acceptor& acceptor_;
  int cancel_fd_;
  SystemClock clock_;
  Instant deadline_;
  Instant next_probe_{};
  Duration probe_interval_ = probe_interval_min;
  std::vector<Peer> peers_;
};

Result<std::vector<net::Socket>> GroupConnect::run() {
  TESON_TRY_VOID(connect_lower());
  TESON_TRY_VOID(claim_arrivals());
  while (!all_ready()) {
    TESON_TRY_VOID(probe_missing());
    TESON_TRY_VOID(wait());
  }
  std::vector<net::Socket> sockets;
  for (Peer& peer : peers_)
    sockets.push_back(std::move(peer.socket));
  return sockets;
}

Result<void> GroupConnect::connect_lower() {
  for (std::size_t rank = 0; rank < own(); ++rank) {
    auto socket = net::connect(group_.addresses[rank], deadline_, cancel_fd_);
    if (!socket) return lost(rank, socket.error());
    net::HandshakeOptions handshake{
        .role = net::HandshakeRole::initiator,
        .job_id = transport_.job_id,
        .purpose = "comm",
        .secret = transport_.secret,
        .body = encode_greeting({.epoch = group_.epoch,
                                 .instance = transport_.instance,
                                 .from = static_cast<std::uint32_t>(group_.rank),
                                 .to = static_cast<std::uint32_t>(rank),
                                 .size = static_cast<std::uint32_t>(peers_.size())})};
    peers_[rank].link.emplace(std::move(*socket), std::move(handshake), deadline_);
    TESON_TRY_VOID(progress(rank));
  }
  return {};
}

Result<void> GroupConnect::progress(std::size_t rank) {
  Peer& peer = peers_[rank];
  if (!peer.link) return read_notice(rank);
  const auto done = peer.link->progress();
  if (!done) return lost(rank, done.error());
  if (!*done) return {};
  TESON_TRY(const Greeting greeting, decode_greeting(peer.link->peer_body()));
  if (const auto same = check_instance(rank, greeting.instance); !same)
    return lost(rank, same.error());
  peer.socket = peer.link->take_socket();
  peer.link.reset();
  return read_notice(rank);
}

Result<void> GroupConnect::read_notice(std::size_t rank) {
  Peer& peer = peers_[rank];
  while (true) {
    // Only this frame is read: what follows it belongs to the communicator.
    std::size_t wanted = net::frame_header_bytes;
    net::FrameHeader header;
    if (peer.notice.size() >= net::frame_header_bytes) {
      auto decoded = net::decode_frame_header(
          std::span<const std::byte>(peer.notice).first<net::frame_header_bytes>(),
          notice_bytes_max);
      if (!decoded) return lost(rank, decoded.error());
      header = *decoded;
      wanted += header.payload_bytes;
    }
    const std::size_t have = peer.notice.size();
    if (have == wanted) {
      if (header.kind == static_cast<std::uint16_t>(FrameKind::welcome) &&
          header.epoch == group_.epoch) {
        peer.ready = true;
        return {};
      }
      std::string reason;
      for (const std::byte byte : std::span(peer.notice).subspan(net::frame_header_bytes))
        reason += static_cast<char>(byte);
      if (header.kind == static_cast<std::uint16_t>(FrameKind::refused)) {
        const auto kind = std::min<std::uint16_t>(
            header.flags, static_cast<std::uint16_t>(ErrorKind::unimplemented));
        return fail(static_cast<ErrorKind>(kind),
                    fmt::format("{} refused the connection: {}", name(rank), reason));
      }
      return fail(
          ErrorKind::invalid,
          fmt::format(
              "{} answered with a frame of kind {} and epoch {}, expected a welcome to epoch {}",
              name(rank), header.kind, header.epoch, group_.epoch));
    }
    peer.notice.resize(wanted);
    auto bytes = peer.socket.receive_some(std::span(peer.notice).subspan(have));
    peer.notice.resize(have + bytes.value_or(0));
    if (!bytes) return lost(rank, bytes.error());
    if (*bytes == 0) return {};
  }
}

Result<void> GroupConnect::check_instance(std::size_t rank, std::uint64_t instance) const {
  if (group_.instances.empty() || group_.instances[rank] == instance) return {};
  return fail(ErrorKind::disconnected,
              fmt::format("gone: its address belongs to instance {:#x} now, expected {:#x}",
                          instance, group_.instances[rank]));
}

Result<void> GroupConnect::claim_arrivals() {
  for (Arrival& arrival : acceptor_.take(group_.epoch))
    TESON_TRY_VOID(claim(std::move(arrival)));
  return {};
}

Result<void> GroupConnect::claim(Arrival arrival) {
  const Greeting& greeting = arrival.greeting;
  if (greeting.size != peers_.size() || greeting.to != own() || greeting.from <= own()) {
    const Error mismatch{
        ErrorKind::invalid,
        fmt::format("rank {} of {} takes this process for rank {} in epoch {}; here it is rank {} "
                    "of {}: both must be given the same group",
                    greeting.from, greeting.size, greeting.to, group_.epoch, group_.rank,
                    peers_.size())};
    send_refusal(arrival.socket, group_.epoch, mismatch);
    return fail(mismatch);
  }
  if (!check_instance(greeting.from, greeting.instance)) {
    // An older process of that address; the right one is yet to come.
    send_refusal(arrival.socket, group_.epoch,
                 {ErrorKind::aborted, "another instance is expected"});
    return {};
  }
  send_welcome(arrival.socket, group_.epoch);
  Peer& peer = peers_[greeting.from];
  peer.socket = std::move(arrival.socket);
  peer.ready = true;
  peer.watched = true;
  return {};
}

Result<void> GroupConnect::probe_missing() {
  if (clock_.now() < next_probe_) return {};
  for (std::size_t rank = own() + 1; rank < peers_.size(); ++rank) {
    if (peers_[rank].ready) continue;
    const auto probe = net::connect(group_.addresses[rank],
                                    std::min(deadline_, clock_.now() + probe_time_max), cancel_fd_);
    if (!probe && probe.error().kind == ErrorKind::disconnected) return lost(rank, probe.error());
  }
  next_probe_ = clock_.now() + probe_interval_;
  probe_interval_ = std::min(2 * probe_interval_, probe_interval_max);
  return {};
}

Result<void> GroupConnect::wait() {
  std::vector<pollfd> polled{{cancel_fd_, POLLIN, 0}, {acceptor_.arrival_fd(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.link) {
      polled.push_back({peer.link->fd(), peer.link->events(), 0});
    } else {
      // A ready peer may send already; only its end matters here.
      const bool polls = peer.socket && (!peer.ready || peer.watched);
      polled.push_back(
          {polls ? peer.socket.fd() : -1, static_cast<short>(peer.ready ? POLLRDHUP : POLLIN), 0});
    }
  }
  const Instant now = clock_.now();
  if (now >= deadline_) return timed_out();
  const Instant until = std::min(deadline_, next_probe_);
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  if (::poll(polled.data(), polled.size(),
             static_cast<int>(std::clamp<std::int64_t>(wait_ms, 0, 1000))) <= 0)
    return {};
  return dispatch(polled);
}

Result<void> GroupConnect::dispatch(const std::vector<pollfd>& polled) {
  if (polled[0].revents != 0) return fail(ErrorKind::aborted, "connecting was ended");
  // A newer connection of a rank takes the place of an older one before that one's end is looked
  // at.
  std::vector<bool> was_ready;
  for (const Peer& peer : peers_)
    was_ready.push_back(peer.ready);
  std::vector<int> fds;
  for (const Peer& peer : peers_)
    fds.push_back(peer.socket.fd());
  if (polled[1].revents != 0) TESON_TRY_VOID(claim_arrivals());
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const short revents = polled[2 + rank].revents;
    if (revents == 0) continue;
    if (!was_ready[rank]) {
      TESON_TRY_VOID(progress(rank));
    } else if (peers_[rank].socket.fd() == fds[rank] && ended_silently(rank)) {
      return lost(rank, {ErrorKind::disconnected,
                         fmt::format("gone: it closed its connection while epoch {} was being "
                                     "connected",
                                     group_.epoch)});
    }
  }
  return {};
}

bool GroupConnect::ended_silently(std::size_t rank) {
  std::byte first;
  const ssize_t bytes = ::recv(peers_[rank].socket.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  // With something to say it may have finished its part already and left in good order: the
  // communicator will see.
  peers_[rank].watched = bytes != 1;
  return bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

// An end while connecting is evidence like one afterwards.
Failure GroupConnect::lost(std::size_t rank, Error error) const {
  if (error.kind == ErrorKind::disconnected && group_.on_peer_lost)
    group_.on_peer_lost(static_cast<int>(rank));
  return fail(error.in(name(rank)));
}

Failure GroupConnect::timed_out() const {
  std::string missing;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == own() || peers_[rank].ready) continue;
    missing += (missing.empty() ? "" : ", ") + name(rank) +
               (peers_[rank].socket ? " has not begun the epoch" : " did not answer");
  }
  return fail(ErrorKind::timed_out,
              fmt::format("epoch {}: not connected after {:.1f} s: {}", group_.epoch,
                          to_seconds(group_.connect_timeout), missing));
}

}  // namespace

Result<std::vector<net::Socket>> connect_group(const GroupOptions& group,
                                               const HostTransportOptions& transport,
                                               Acceptor& acceptor, int cancel_fd) {
  return GroupConnect(group, transport, acceptor, cancel_fd).run();
}

}  // namespace teson::comm
