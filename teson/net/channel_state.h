#pragma once

// The insides of a Channel; not for use outside net/.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "teson/net/channel.h"
#include "teson/net/frame.h"
#include "teson/net/handshake.h"
#include "teson/net/loop.h"
#include "teson/net/socket.h"

namespace teson::net {

/// Reading, the handshake and the end belong to the loop's thread. Writing belongs to whoever holds mutex_: a sender writes at once
/// what the kernel takes, and only the rest waits for the loop.
class Channel::State : public std::enable_shared_from_this<Channel::State> {
 public:
  /// `open`: the handshake has been done already, and the peer said `peer_body`.
  State(Loop& loop, Socket socket, HandshakeRole role, ChannelOptions options);
  void set_open(std::vector<std::byte> peer_body);

  void start(ChannelCallbacks callbacks);
  Result<void> send(std::uint16_t kind, std::shared_ptr<const std::string> payload,
                    std::uint64_t epoch);
  Result<void> flush(Instant deadline);
  void close();
  /// No callback from now on; ends the channel.
  void detach();

  /// Loop's thread. Runs the handshake without callbacks; `done` is called once, with its end.
  void authenticate(std::function<void(const Result<void>&)> done);
  /// Loop's thread. Ends the channel, the first time.
  void finish(Error error);

  const std::vector<std::byte>& peer_body() const { return peer_body_; }
  const Address& peer() const { return socket_.peer(); }
  std::size_t outgoing_bytes() const;

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    std::shared_ptr<const std::string> payload;
    std::size_t size() const { return header.size() + payload->size(); }
  };
  enum class Stage : std::uint8_t { fresh, handshake, open, ended };

  // Loop's thread.
  void begin();
  void step_handshake();
  Result<void> run_handshake_step();
  void handshake_ended(const Result<void>& result);
  void read_from(std::size_t budget);
  void arm_read();
  Result<std::size_t> receive();
  Result<void> take_frames();
  Result<void> deliver(const FrameHeader& header, Buffer payload);
  void write_ready();
  void ensure_watch();

  // Under mutex_.
  Result<void> write_locked();
  void arm_write_locked();

  Loop& loop_;
  Socket socket_;
  ChannelOptions options_;
  Stage stage_ = Stage::fresh;
  Watch watch_;
  Timer deadline_;
  std::unique_ptr<Handshake> handshake_;
  std::function<void(const Result<void>&)> authenticated_;
  std::shared_ptr<const ChannelCallbacks> callbacks_;
  std::vector<std::byte> peer_body_;

  std::vector<std::byte> staging_;  ///< received, not yet understood: [staging_from_, staging_to_)
  std::size_t staging_from_ = 0;
  std::size_t staging_to_ = 0;
  std::optional<FrameHeader>
      filling_header_;  ///< a payload larger than what was staged arrives in place
  Buffer filling_;
  std::size_t filled_ = 0;
  std::uint64_t received_sequence_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable drained_;
  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t front_sent_ = 0;
  std::uint64_t sent_sequence_ = 0;
  bool may_write_ = false;    ///< open
  bool write_armed_ = false;  ///< the loop goes on with the queue
  std::optional<Error> closed_;
};

}  // namespace teson::net
