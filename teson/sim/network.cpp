#include "teson/sim/network.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include "teson/sim/draw.h"

namespace teson::sim {

namespace {

constexpr std::size_t pieces_max = 64;

}  // namespace

void Network::join(End first, End second) {
  const auto hosts = std::minmax(first.host, second.host);
  const auto hold = holds_.find(hosts);
  connections_.push_back({.ends = {std::move(first), std::move(second)}});
  if (hold != holds_.end()) connections_.back().held_until = hold->second;
}

void Network::process_ended(int process) {
  for (auto& connection : connections_) {
    for (std::size_t i = 0; i < 2; ++i) {
      // Its end is not closed by itself: what is dead closes nothing.
      if (connection.ends[i].process == process) connection.directions[i].sender_gone = true;
    }
  }
}

bool Network::is_between(const Connection& connection, int host, int other) {
  const auto& [first, second] = connection.ends;
  return (first.host == host && second.host == other) ||
         (first.host == other && second.host == host);
}

void Network::hold(int host, int other, Instant until) {
  holds_[std::minmax(host, other)] = until;
  for (auto& connection : connections_) {
    if (is_between(connection, host, other))
      connection.held_until = std::max(connection.held_until, until);
  }
}

void Network::cut(int host, int other) {
  connections_.remove_if(
      [&](const Connection& connection) { return is_between(connection, host, other); });
}

void Network::silence(int host) {
  for (auto& connection : connections_) {
    if (connection.between_hosts() &&
        (connection.ends[0].host == host || connection.ends[1].host == host))
      connection.silent = true;
  }
}

void Network::add_waits(std::vector<pollfd>& fds) const {
  for (const auto& connection : connections_) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Direction& out = connection.directions[i];
      const bool reads = !out.ended && out.pieces.size() < pieces_max;
      const bool writes = connection.directions[1 - i].blocked;
      // A descriptor that nothing is wanted of would still report its end, again and again.
      if (!reads && !writes) continue;
      fds.push_back({.fd = connection.ends[i].fd.get(),
                     .events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
                     .revents = 0});
    }
  }
}

Instant Network::next_due() const {
  Instant next = Instant::max();
  for (const auto& connection : connections_) {
    if (connection.silent) continue;
    for (const auto& direction : connection.directions) {
      if (direction.blocked) continue;
      if (!direction.pieces.empty()) {
        next = std::min(next, std::max(direction.pieces.front().due, connection.held_until));
      } else if (direction.ended) {
        next = std::min(next, std::max(direction.last_due, connection.held_until));
      }
    }
  }
  return next;
}

void Network::step(Instant now) {
  for (auto at = connections_.begin(); at != connections_.end();) {
    for (std::size_t from = 0; from < 2; ++from)
      read(*at, from, now);
    bool over = false;
    for (std::size_t from = 0; from < 2 && !at->silent && now >= at->held_until; ++from) {
      write(*at, from, now);
      const Direction& direction = at->directions[from];
      // Nobody of ours closes one half: what ends one direction ends both.
      over |= direction.ended && direction.pieces.empty() && now >= direction.last_due;
    }
    at = over ? connections_.erase(at) : std::next(at);
  }
}

Duration Network::delay() {
  const bool slow = random_.uniform() < options_.slow_share;
  return draw(random_, slow ? options_.slow_max : options_.delay_max);
}

void Network::read(Connection& connection, std::size_t from, Instant now) {
  Direction& out = connection.directions[from];
  while (!out.ended && out.pieces.size() < pieces_max) {
    const ssize_t got =
        ::recv(connection.ends[from].fd.get(), room_.get(), piece_bytes_max, MSG_DONTWAIT);
    const bool nothing = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (nothing && !out.sender_gone) return;
    out.last_due = std::max(out.last_due, now + delay());
    if (got <= 0) {
      out.ended = true;
      return;
    }
    Piece piece{.due = out.last_due, .bytes = {room_.get(), room_.get() + got}};
    if (connection.between_hosts() && options_.damage_share > 0 &&
        random_.uniform() < options_.damage_share) {
      damage(out, std::move(piece));
    } else {
      out.pieces.push_back(std::move(piece));
    }
  }
}

void Network::damage(Direction& direction, Piece piece) {
  switch (random_.below(4)) {
    case 0:
      return;
    case 1:
      direction.pieces.push_back(piece);
      break;
    case 2:
      if (!direction.pieces.empty()) std::swap(direction.pieces.back().bytes, piece.bytes);
      break;
    default:
      piece.bytes[random_.below(piece.bytes.size())] ^= std::byte{1};
  }
  direction.pieces.push_back(std::move(piece));
}

void Network::write(Connection& connection, std::size_t from, Instant now) {
  Direction& out = connection.directions[from];
  out.blocked = false;
  while (!out.pieces.empty() && out.pieces.front().due <= now) {
    auto& bytes = out.pieces.front().bytes;
    const ssize_t sent = ::send(connection.ends[1 - from].fd.get(), bytes.data(), bytes.size(),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      out.blocked = true;
      return;
    }
    if (sent < 0) {
      // Nobody is there any more; the other direction says when that is over.
      out.pieces.clear();
      return;
    }
    bytes.erase(bytes.begin(), bytes.begin() + sent);
    if (bytes.empty()) out.pieces.pop_front();
  }
}

}  // namespace teson::sim
