#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "teson/comm/command_queue.h"
#include "teson/comm/message_box.h"
#include "teson/comm/peer_stream.h"
#include "teson/comm/tiled_reduce.h"

namespace teson::comm {

struct EngineOptions {
  std::uint64_t epoch = 0;
  int rank = 0;
  std::vector<net::Socket> sockets;     ///< by rank; the own one empty
  std::vector<net::Address> addresses;  ///< by rank, for messages
  std::function<void(int rank)> on_peer_lost;
  std::size_t early_message_bytes_max = 0;
};

/// What a communicator's thread runs: one collective at a time, all messages at once, over
/// non-blocking streams to every peer. The first failure ends it all: every operation gets the same
/// error, caller's memory is not touched any more, peers are told that we leave. It then goes on to
/// watch the peers (for on_peer_lost) until closed. One thread.
class Engine final : private FrameReceiver, private FrameSender {
 public:
  Engine(EngineOptions options, std::shared_ptr<CommandQueue> queue);
  /// Until the queue is closed.
  void run();

 private:
  struct OutgoingMessage final : SentListener {
    std::size_t chunks_left = 0;
    int peer = 0;
    std::shared_ptr<Work::State> work;
    void sent(int) override { --chunks_left; }
  };
  struct Waiting {
    std::unique_ptr<Operation> operation;
    std::shared_ptr<Work::State> work;
  };
  struct Loss {
    bool left = false;   ///< in good order
    int blamed = -1;     ///< whom it blamed for its leaving
    std::string reason;  ///< "it closed the connection"
  };

  void take_commands(bool woken);
  void begin(Command command);
  void begin_message(Command& command);
  bool progress();
  void start_next();
  void receive_all();
  void send_all();
  void step();
  void finish_done();
  void wait(int timeout_ms);
  void say_farewell();

  void receive(PeerStream& stream);
  void stream_failed(PeerStream& stream, const Error& error);
  void lose(PeerStream& stream, const Error& error);
  bool needs(int rank) const;
  bool stands_still(const PeerStream& stream) const;
  void check_losses();
  std::string address_of(int rank) const;
  Error loss_error(int rank) const;
  void end(const Error& error, int blamed);

  Result<std::optional<std::span<std::byte>>> place(int rank,
                                                    const net::FrameHeader& header) override;
  Result<void> received(int rank, const net::FrameHeader& header) override;
  void push(int rank, const OutgoingFrame& frame) override { stream_of(rank).push(frame); }
  void push_first(int rank, const OutgoingFrame& frame) override {
    stream_of(rank).push_first(frame);
  }
  PeerStream& stream_of(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }

  EngineOptions options_;
  std::shared_ptr<CommandQueue> queue_;
  std::vector<std::unique_ptr<PeerStream>> streams_;  ///< by rank; the own one null
  std::vector<std::uint8_t> readable_;                ///< by rank
  std::vector<std::uint8_t> hung_up_;        ///< by rank: its end of the connection is closed
  std::vector<std::optional<Loss>> losses_;  ///< by rank
  std::vector<pollfd> polled_;
  std::vector<int> polled_rank_;
  std::deque<Waiting> waiting_;  ///< collectives; the first one runs once started_
  bool started_ = false;
  std::uint64_t number_ = 0;  ///< of the first waiting collective
  std::list<OutgoingMessage> outgoing_;
  MessageBox messages_;
  std::uint64_t received_ = 0;  ///< frames
  bool ended_ = false;
  Error end_error_;
  bool closed_ = false;
  bool woken_ = false;
  bool new_loss_ = false;
};

}  // namespace teson::comm
