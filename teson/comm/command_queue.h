#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/comm/operation.h"
#include "teson/comm/work.h"

namespace teson::comm {

/// What a caller asks of the communicator's thread.
struct Command {
  enum class Kind : std::uint8_t { collective, send, receive };
  Kind kind = Kind::collective;
  std::unique_ptr<Operation> operation;  ///< collective
  int peer = 0;                          ///< send, receive
  std::uint32_t tag = 0;
  std::span<const std::byte> source;  ///< send
  std::span<std::byte> target;        ///< receive
  std::shared_ptr<Work::State> work;
};

/// The only thing that callers and the communicator's thread share: commands, the error that ended
/// everything, and a descriptor to wake the thread. Threads: push, abort, close from any; the rest
/// from the communicator's.
class CommandQueue {
 public:
  static constexpr std::size_t unfinished_max = 4096;  ///< operations started and not ended

  static Result<std::shared_ptr<CommandQueue>> make();
  explicit CommandQueue(Fd wake) : wake_(std::move(wake)) {}

  /// The Work of the command; already ended if the communicator has ended (with its error) or there
  /// are too many (`overloaded`).
  Work push(Command command);
  /// Asks the thread to end everything with `error`. The first error stays. Always wakes it.
  void abort(Error error);
  /// Asks the thread to return.
  void close();

  /// True from the moment of abort or close: long work stops early.
  const std::atomic<bool>& interrupted() const { return interrupted_; }
  bool aborted() const;
  /// Readable when take has something new.
  int fd() const { return wake_.get(); }

  struct Taken {
    std::deque<Command> commands;
    std::optional<Error> abort;
    bool closed = false;
  };
  /// Everything since the last call. `woken`: the descriptor is readable.
  Taken take(bool woken);
  /// From here on push answers with `error`. Returns what was pushed and not taken.
  std::deque<Command> end(const Error& error);

 private:
  void wake();

  Fd wake_;
  std::atomic<bool> interrupted_ = false;
  mutable std::mutex mutex_;
  std::deque<Command> commands_;
  std::shared_ptr<std::atomic<std::size_t>> unfinished_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  bool wake_pending_ = false;
  bool closed_ = false;
  std::optional<Error> abort_;
  std::optional<Error> ended_;
};

}  // namespace teson::comm
