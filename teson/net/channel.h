#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/net/address.h"
#include "teson/net/handshake.h"
#include "teson/net/loop.h"
#include "teson/net/payload.h"
#include "teson/net/tls.h"

namespace teson::net {

class Socket;
class ChannelState;

/// One message as it arrived. Kinds and epochs belong to whoever uses the channel.
struct Message {
  std::uint16_t kind = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  ///< 1, 2, … in each direction: a gap closes the channel
  Buffer payload;
};

struct ChannelOptions {
  /// job_id, purpose, secret and body; the role is set by the channel.
  HandshakeOptions handshake;
  /// From the connection to the peer's proof: a silent peer is dropped after it.
  Duration handshake_deadline = std::chrono::seconds(5);
  /// A larger message is refused by send, and closes the channel when a peer claims one.
  std::size_t payload_bytes_max = std::size_t{1} << 30;
  /// What may wait to be sent before send answers `overloaded`. One message is always taken if nothing waits.
  std::size_t outgoing_bytes_max = std::size_t{256} << 20;
  std::size_t outgoing_messages_max = 65536;
  /// What may lie in shared memory until the peer gives it back: bytes, and messages.
  std::size_t lent_bytes_max = std::size_t{256} << 20;
  std::size_t lent_messages_max = 32;
  /// Encrypts connections over TCP, others not. Null: none.
  std::shared_ptr<Tls> tls;
  /// The channel outlives its connection: what is sent is kept until the peer has it, and goes again over the next one. The same at both
  /// ends. Of no effect over Unix sockets, which end with their peer.
  bool resumable = false;
};

/// Bytes of a channel since it was opened.
struct ChannelProgress {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;   ///< given to send
  std::uint64_t taken = 0;  ///< of those: what has come to the peer's machine; 0 once closed
};

/// What a channel calls, always on the loop's thread, never two at once. Any may be empty.
struct ChannelCallbacks {
  /// The handshake has succeeded. Called first, once.
  std::function<void()> on_open;
  std::function<void(Message)> on_message;
  /// A message that a thread has read in the loop's stead (ChannelReader), on that thread. True: it is dealt with; else on_message gets it. Not
  /// asked while on_message has still to get an earlier one, or is at it. Must be short and not wait.
  std::function<bool(Message&)> on_early_message;
  /// The connection of a resumable channel is lost. The channel waits for the next one: who gives up closes it, and on_closed says this error.
  std::function<void(const Error&)> on_cut;
  /// It goes on over another connection; the peer has agreed.
  std::function<void()> on_resumed;
  /// The channel has ended, exactly once, and nothing is called after it. `disconnected`: the peer hung up or its process died (known at
  /// once from the end of the stream); `timed_out`: no handshake in time; `invalid`: refused handshake or damaged frame;
  /// `aborted`: close() was called here.
  std::function<void(const Error&)> on_closed;
};

/// Reads a channel on a thread that can do nothing before a message of it has come: the message need not pass through the
/// loop's thread, which halves the changes of threads. A light handle: copyable, outlives its channel. Threads: any.
class ChannelReader {
 public:
  ChannelReader() = default;
  explicit operator bool() const { return state_ != nullptr; }
  /// Reads until `done`, which is asked first, after what each read has brought, and when `wake_fd` (an eventfd of the caller's) is written;
  /// until the deadline; or until the channel ends, or its loop must have it back. Whether or not `done` has become true is for the caller to look
  /// at. Returns at once if another thread reads, or if the channel is not open. Not for the loop's thread.
  void read_until(Instant deadline, const std::function<bool()>& done, int wake_fd) const;

 private:
  friend class Channel;
  explicit ChannelReader(std::shared_ptr<ChannelState> state) : state_(std::move(state)) {}
  std::shared_ptr<ChannelState> state_;
};

/// Whole messages, in order, over a connected stream socket (Unix, TCP or a socketpair), with the handshake before them and a checksum on
/// each. An end of stream is reported at once, never hidden by a retry; there are no heartbeats: who needs them sends them. A resumable channel is
/// told of as cut, and can be given another connection: no message is lost or repeated, as long as both ends live.
/// Ownership: the destructor closes. After it has returned no callback runs; called from another thread than the loop's it waits
/// for one that is running, so do not hold a lock that callbacks take.
class Channel {
 public:
  /// Connects, runs the handshake and returns the open channel. Blocks until `deadline` or until cancel_fd is readable: not for the
  /// loop's thread. Nothing is delivered before start(). Errors as of net::connect and run_handshake.
  static Result<std::unique_ptr<Channel>> connect(Loop& loop, const Address& address,
                                                  ChannelOptions options, Instant deadline,
                                                  int cancel_fd = -1);
  /// The same over a socket that is connected already; over one end of a socketpair a secret is required.
  static Result<std::unique_ptr<Channel>> open(Loop& loop, Socket socket, HandshakeRole role,
                                               ChannelOptions options, Instant deadline,
                                               int cancel_fd = -1);
  static Result<std::unique_ptr<Channel>> open(Loop& loop, Fd fd, HandshakeRole role,
                                               ChannelOptions options, Instant deadline,
                                               int cancel_fd = -1);
  /// Takes over a connected stream socket, whose other end does the same with the other role. The handshake runs on the loop from start() on;
  /// what is sent before it ends waits.
  static std::unique_ptr<Channel> adopt(Loop& loop, Fd fd, HandshakeRole role,
                                        ChannelOptions options, const Address& peer = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Begins to deliver. Once. Threads: any; callbacks may run before it returns.
  void start(ChannelCallbacks callbacks);

  /// Queues a message; it leaves in the order of the calls. Threads: any; allowed before start(). `overloaded`: a bound of the options is reached, nothing
  /// was queued; `invalid`: larger than payload_bytes_max; else the error with which the channel has closed. Success means
  /// queued, not received.
  Result<void> send(std::uint16_t kind, std::string payload, std::uint64_t epoch = 0);
  /// The same payload can go to many channels without copying it. One in shared memory is not copied through a Unix socket either: the
  /// peer maps it, and gives it back when its Buffer ends. At most lent_bytes_max are with the peer so; what is beyond is copied.
  Result<void> send(std::uint16_t kind, Payload payload, std::uint64_t epoch = 0);
  /// A message that no bound holds up, for those of which there are few.
  void send_note(std::uint16_t kind, Payload payload, std::uint64_t epoch = 0);
  /// Waits until everything queued was handed to the kernel, and no cut stands between it and the peer. `timed_out` at the deadline. Not for
  /// the loop's thread.
  Result<void> flush(Instant deadline);
  /// Ends the channel now; what was not yet handed to the kernel is lost. on_closed follows. Threads: any. Idempotent.
  void close();

  /// Goes on over the connection of `fresh`, which is open, not started, and of the same peer, whose end does the same. What the peer has not
  /// received goes again, first. Whether this channel knows already that it is cut does not matter; once it has ended `fresh` is dropped. Threads: any.
  void resume(std::unique_ptr<Channel> fresh);

  /// What the peer said in its handshake. Valid once open (connect has returned, on_open or on_accept was called).
  const std::vector<std::byte>& peer_body() const;
  /// Where the peer is, for messages to people; family none for a socketpair.
  const Address& peer() const;
  /// The same in numbers, of a channel that connect has made: where to connect again.
  const Address& endpoint() const;
  /// Bytes that wait to be sent. Threads: any.
  std::size_t outgoing_bytes() const;
  /// Tells that a line moves while a message is on it that takes long. Threads: any.
  ChannelProgress progress() const;
  ChannelReader reader() const { return ChannelReader(state_); }

 private:
  friend class ChannelListener;
  using State = ChannelState;
  explicit Channel(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

struct ChannelListenerOptions {
  ChannelOptions channel;
  /// Connections whose handshake has not ended. One more drops the oldest of them.
  std::size_t unauthenticated_max = 64;
};

/// Accepts channels at an address. Destructor: stops listening, drops unfinished handshakes, waits for a running callback (unless on the loop's
/// thread). Accepted channels live on.
class ChannelListener {
 public:
  /// `on_accept` runs on the loop's thread with each channel whose handshake has succeeded, not yet started: keep it and start() it, or drop it
  /// to refuse. Strangers never reach it. Errors as of net::Listener::listen.
  static Result<std::unique_ptr<ChannelListener>> listen(
      Loop& loop, const Address& address, ChannelListenerOptions options,
      std::function<void(std::unique_ptr<Channel>)> on_accept);
  ~ChannelListener();
  ChannelListener(const ChannelListener&) = delete;
  ChannelListener& operator=(const ChannelListener&) = delete;

  /// Where it listens; a port 0 has become a number.
  const Address& address() const;

 private:
  class State;
  explicit ChannelListener(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace teson::net
