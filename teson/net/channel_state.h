#pragma once

// The insides of a Channel; not for use outside net/.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "teson/base/fd.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"
#include "teson/net/frame.h"
#include "teson/net/handshake.h"
#include "teson/net/loop.h"
#include "teson/net/read_gate.h"
#include "teson/net/socket.h"
#include "teson/net/spin_budget.h"

namespace teson::net {

/// What a frame of a channel can be beside an ordinary one; in its flags.
inline constexpr std::uint16_t frame_shared = 1;    ///< the payload is in shared memory
inline constexpr std::uint16_t frame_returned = 2;  ///< shared memory is given back
// Of a resumable one, outside the sequence:
inline constexpr std::uint16_t frame_received = 4;  ///< how many messages of the peer's have come
inline constexpr std::uint16_t frame_ended = 8;     ///< nothing follows, nor is resumed

/// The handshake and the end belong to the loop's thread. Reading belongs to the loop's thread too, unless it is lent to one that waits for a message
/// (read_until): then the loop's stays away until it is given back. Writing belongs to whoever holds mutex_: a sender writes at once
/// what the kernel takes, and only the rest waits for the loop.
class ChannelState : public std::enable_shared_from_this<ChannelState> {
 public:
  /// `open`: the handshake has been done already, and the peer said `peer_body`.
  ChannelState(Loop& loop, Socket socket, HandshakeRole role, ChannelOptions options);
  void set_open(std::vector<std::byte> peer_body);

  void start(ChannelCallbacks callbacks);
  Result<void> send(std::uint16_t kind, Payload payload, std::uint64_t epoch);
  void send_note(std::uint16_t kind, Payload payload, std::uint64_t epoch);
  Result<void> flush(Instant deadline);
  void close();
  /// No callback from now on; ends the channel.
  void detach();

  /// Loop's thread. Runs the handshake without callbacks; `done` is called once, with its end.
  void authenticate(std::function<void(const Result<void>&)> done);
  /// Loop's thread. Ends the channel, the first time.
  void finish(Error error);
  /// Loop's thread. As of Channel::resume.
  void resume(ChannelState& fresh);
  Loop& loop() { return loop_; }

  const std::vector<std::byte>& peer_body() const { return peer_body_; }
  const Address& peer() const { return peer_; }
  const Address& endpoint() const { return endpoint_; }
  std::size_t outgoing_bytes() const;
  ChannelProgress progress() const;
  /// As of ChannelReader.
  void read_until(Instant deadline, const std::function<bool()>& done, int wake_fd);

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    Payload payload;
    Payload lent;                ///< the shared memory whose descriptor goes along, if any
    std::uint64_t sequence = 0;  ///< 0: outside it
    std::size_t size() const { return header.size() + payload.size(); }
  };
  struct Borrowed;
  enum class Stage : std::uint8_t { fresh, handshake, open, cut, ended };
  enum class Reader : std::uint8_t { none, loop, thread };

  // Loop's thread.
  void begin();
  void step_handshake();
  Result<void> run_handshake_step();
  void handshake_ended(const Result<void>& result);
  void begin_reading();
  void read_from(std::size_t budget);
  void read_on_loop(std::size_t budget);
  void arm_read();
  void deliver_handed_over();
  /// Takes reading back from who has it, for good.
  void reclaim();
  /// The connection with this number is of no use any more: the channel is cut, or ends.
  void lose_connection(Error error, std::uint64_t connection);
  void lose_connection(Error error) { lose_connection(std::move(error), connection_); }
  void suspend();
  void resume_over(Socket socket);
  /// The socket of a channel that is open and not started, which ends.
  Socket give_socket();

  // Whoever reads.
  /// How many bytes came; what they make whole is delivered.
  Result<std::size_t> read_once();
  /// As read_once, but looks for a while if there is nothing yet.
  Result<std::size_t> read_spinning();
  Result<std::size_t> receive();
  Result<void> take_frames();
  Result<void> deliver(const FrameHeader& header, Buffer payload);
  /// What the peer has put into shared memory, instead of the payload that says how much.
  Result<Buffer> open_shared(const FrameHeader& header, const Buffer& payload);
  /// The peer has done with what was lent to it.
  Result<void> take_back(const Buffer& payload);
  /// What flags say that only resumable channels have.
  Result<void> take_note(const FrameHeader& header, const Buffer& payload);
  Result<void> take_received(std::uint64_t received);
  /// Tells the peer now and then what need not be kept for it.
  void count_received(std::size_t bytes);
  void deliver_early(const ChannelCallbacks& callbacks, Message message);

  bool recalled() const;
  std::string peer_name() const;

  // Loop's thread.
  void write_ready();
  void watch_for_room();

  /// We have done with what the peer has lent us. Threads: any.
  void give_back(std::uint64_t sequence);

  // Under mutex_.
  Result<void> check_room_locked(std::size_t payload_bytes) const;
  bool can_lend_locked(std::size_t bytes) const;
  Result<void> lend_locked(FrameHeader header, const Payload& payload);
  void queue_locked(FrameHeader header, Payload payload, Payload lent = {});
  void append_locked(Outgoing frame);
  /// One outside the sequence waits for no more than the frame that is on its way.
  void append_note_locked(Outgoing frame);
  void write_on_locked();
  /// What is kept for a peer that does not say what it has received.
  bool keeps_too_much_locked() const;
  void pop_sent_locked();
  void say_ended_locked();
  Result<std::size_t> write_some_locked();
  Result<void> write_locked();
  void arm_write_locked();

  Loop& loop_;
  Socket socket_;
  const Address peer_;
  const Address endpoint_;
  ChannelOptions options_;
  const bool takes_descriptors_;  ///< a Unix socket, so the peer is on this host
  Stage stage_ = Stage::fresh;
  ReadGate gate_;  ///< between the socket and the loop, from the handshake's end on
  Watch watch_;    ///< of the socket, then of the gate
  /// While bytes wait for room in the socket: a descriptor of its own. On the reading one the loop
  /// would go on being woken at each room that comes.
  Fd write_fd_;
  Watch write_watch_;
  bool drained_socket_ = false;  ///< the last receive took less than it had room for
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
  std::uint64_t received_untold_ = 0;  ///< messages that the peer still keeps
  std::size_t received_untold_bytes_ = 0;
  int barren_ = 0;            ///< connections in a row that have brought no message
  bool awaits_peer_ = false;  ///< resumed here, not yet by the peer
  bool peer_ended_ = false;
  std::uint64_t connection_ = 0;  ///< how often it was resumed
  std::uint64_t resumed_at_ = 0;  ///< received_sequence_ when it was last
  std::deque<Fd> descriptors_;    ///< received, of frames that are not yet understood
  std::atomic<std::uint64_t> received_bytes_{0};

  mutable Mutex reader_mutex_;
  Condition reader_gone_;
  Reader reader_ = Reader::none;
  bool lendable_ = false;
  bool loop_waits_ = true;  ///< for the gate; false: it was woken while a thread read
  int reader_wake_fd_ = -1;
  SpinBudget spins_;  ///< whoever reads
  /// Read by a thread, not yet told to on_message.
  std::deque<Message> handed_over_;
  bool handing_over_ = false;  ///< on_message is being told, and will be of what is added meanwhile

  mutable Mutex mutex_;
  Condition drained_;
  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t front_sent_ = 0;
  std::uint64_t sent_sequence_ = 0;
  std::deque<Outgoing> kept_;  ///< of a resumable channel: sent, perhaps not received
  std::size_t kept_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;                   ///< that the peer has said to have received
  std::optional<Error> cut_;                         ///< why, until it is resumed
  std::unordered_map<std::uint64_t, Payload> lent_;  ///< by sequence, until the peer gives it back
  std::size_t lent_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  bool may_write_ = false;    ///< open
  bool write_armed_ = false;  ///< the loop goes on with the queue
  std::optional<Error> closed_;
};

}  // namespace teson::net
