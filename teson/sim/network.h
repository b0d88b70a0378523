#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <poll.h>

#include "teson/base/clock.h"
#include "teson/base/fd.h"
#include "teson/base/random.h"

namespace teson::sim {

/// What a network does to what it carries. Times are drawn uniformly from 0 to their maximum.
struct NetworkOptions {
  Duration delay_max = std::chrono::microseconds(200);
  /// Now and then a piece takes much longer.
  double slow_share = 0.01;
  Duration slow_max = std::chrono::milliseconds(50);
  /// Of the pieces between hosts: lost, repeated, overtaken by the next, or with one bit changed. Something
  /// beneath a stream that TCP would not have let through.
  double damage_share = 0;
};

/// Carries bytes between sockets of processes: whatever one writes, the other gets, later. One thread, that of the simulation's kernel.
class Network {
 public:
  Network(CounterRandom& random, NetworkOptions options) : random_(random), options_(options) {}

  /// One end of a connection: a descriptor whose other end the process holds, and where that process runs.
  struct End {
    Fd fd;
    int process = 0;
    int host = 0;
  };
  void join(End first, End second);
  /// What it has written still arrives; then its peers see the end. A step follows.
  void process_ended(int process);
  /// Nothing passes between two hosts until `until`, and nobody is told.
  void hold(int host, int other, Instant until);
  /// All connections between two hosts break, both ends see it.
  void cut(int host, int other);
  /// Of one host, without a word: what it has sent is lost, and its connections carry nothing any more, even if it is
  /// started again.
  void silence(int host);

  /// What to wait for, and until when.
  void add_waits(std::vector<pollfd>& fds) const;
  Instant next_due() const;
  /// Carries what is there.
  void step(Instant now);
  std::size_t connections() const { return connections_.size(); }

 private:
  struct Piece {
    Instant due;
    std::vector<std::byte> bytes;
  };
  /// From one end to the other.
  struct Direction {
    std::deque<Piece> pieces;
    Instant last_due{};
    bool sender_gone = false;  ///< what it has sent before is still to be read
    bool ended = false;        ///< nothing more will come
    bool blocked = false;      ///< the receiver takes no more for now
  };
  struct Connection {
    std::array<End, 2> ends;
    std::array<Direction, 2> directions;  ///< of what the end of that number has sent
    Instant held_until{};
    bool silent = false;
    bool between_hosts() const { return ends[0].host != ends[1].host; }
  };

  void read(Connection& connection, std::size_t from, Instant now);
  void damage(Direction& direction, Piece piece);
  void write(Connection& connection, std::size_t from, Instant now);
  Duration delay();
  static bool is_between(const Connection& connection, int host, int other);

  static constexpr std::size_t piece_bytes_max = 64 << 10;

  CounterRandom& random_;
  const NetworkOptions options_;
  /// What a read brings, before it is known how much that is.
  const std::unique_ptr<std::byte[]> room_ =
      std::make_unique_for_overwrite<std::byte[]>(piece_bytes_max);
  std::list<Connection> connections_;
  std::map<std::pair<int, int>, Instant> holds_;  ///< of two hosts, the lower one first
};

}  // namespace teson::sim
