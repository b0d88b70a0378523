#pragma once

// Calls that wait for their replies; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/channel.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

/// An encoded Result<R> as it arrived, or the error that stands in its place.
struct RawReply {
  net::Buffer buffer;
  std::size_t from = 0;  ///< where the Result starts in it
  std::span<const std::byte> bytes() const { return buffer.bytes().subspan(from); }
  /// The Result is a value: its first byte says so.
  bool has_value() const { return buffer.size() > from && buffer.bytes()[from] == std::byte{1}; }
};

class PendingTable;

/// The replies that one call waits for. Each slot is completed once: by its reply or by its proc's
/// death; what is still open at the deadline becomes timed_out. Threads: any.
class PendingCall {
 public:
  PendingCall(std::uint64_t id, std::vector<std::uint64_t> procs, Instant deadline,
              std::weak_ptr<PendingTable> table = {});
  ~PendingCall();
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  std::uint64_t id() const { return id_; }
  std::size_t size() const { return slots_.size(); }
  /// Its replies come through this channel: who waits for them may read it. Before any wait.
  void read_from(net::ChannelReader reader) { reader_ = std::move(reader); }

  /// Completes the slot of `proc`; later completions of it are dropped.
  void complete(std::uint64_t proc, Result<RawReply> reply);
  /// Completes the slot at `index`.
  void complete_at(std::size_t index, Result<RawReply> reply);
  /// Completes all slots, but not that of `spared`.
  void fail_all(const Error& error, std::optional<std::uint64_t> spared = {});

  /// Blocks until all slots are complete.
  void wait();
  /// Blocks until so many slots hold values, or no longer can.
  void wait_for(std::size_t values);
  /// Blocks until one more slot is complete: which one. In the order of completion, each once;
  /// nothing after the last.
  std::optional<std::size_t> wait_next();
  /// Whether wait() would return at once.
  bool done() const;
  /// Moves out what is in a slot; nothing while it is open. Once.
  std::optional<Result<RawReply>> take(std::size_t index);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Slot {
    std::uint64_t proc;
    std::optional<Result<RawReply>> reply;
    bool complete = false;
    std::size_t completed_next = none;  ///< the slot that was completed after this one
  };
  /// Under mutex_; true: whoever waits is to be woken.
  bool fill(std::size_t index, Result<RawReply> reply);
  /// Under mutex_. A handler that runs in place is refused what has not come yet.
  void refuse_in_place();
  void expire();
  /// Reads the channel itself while replies are open.
  void read_channel(std::unique_lock<Mutex>& lock);
  void wake_reader() const;

  const std::uint64_t id_;
  const Instant deadline_;
  const std::weak_ptr<PendingTable> table_;
  mutable Mutex mutex_;
  Condition ready_;
  std::vector<Slot> slots_;
  std::size_t open_;
  std::size_t values_ = 0;
  std::size_t unread_ = none;  ///< the first completed slot that wait_next has not told
  std::size_t last_ = none;    ///< the last completed one
  bool each_wakes_ = false;    ///< somebody waits for less than all
  net::ChannelReader reader_;
  std::thread::id reading_;  ///< the thread that reads the channel
  int reading_fd_ = -1;      ///< what wakes it
};

/// All calls of a process that wait. Threads: any.
class PendingTable : public std::enable_shared_from_this<PendingTable> {
 public:
  /// `where`: what messages call a proc.
  explicit PendingTable(std::function<std::string(std::uint64_t proc)> where = {})
      : where_(std::move(where)) {}

  /// A call leaves the table when its last holder drops it: what arrives for it then is dropped.
  std::shared_ptr<PendingCall> begin(std::vector<std::uint64_t> procs, Instant deadline);
  void reply(std::uint64_t call, std::uint64_t proc, RawReply reply);
  /// Completes every slot that waits for this proc.
  void fail_proc(std::uint64_t proc, const Error& error);
  /// Completes every slot that waits for another proc than this.
  void fail_others(std::uint64_t self, const Error& error);
  /// From now on calls complete at once with `error`.
  void close(const Error& error);
  std::size_t size() const;
  std::string where(std::uint64_t proc) const;

 private:
  friend class PendingCall;
  void forget(std::uint64_t call);
  std::vector<std::shared_ptr<PendingCall>> all() const;

  const std::function<std::string(std::uint64_t)> where_;
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<PendingCall>> calls_;
  std::uint64_t next_ = 1;
  std::optional<Error> closed_;
};

template <typename R>
Result<R> decode_reply(Result<RawReply> raw) {
  if (!raw) return Failure(std::move(raw).error());
  auto decoded = net::decode<Result<R>>(raw->bytes());
  if (!decoded) return Failure(std::move(decoded).error().in("the reply"));
  return std::move(*decoded);
}

}  // namespace teson::actor::detail
