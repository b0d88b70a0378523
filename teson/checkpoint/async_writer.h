#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/checkpoint/checkpoint.h"

namespace teson {

/// How one background write ended.
struct CheckpointOutcome {
  CheckpointId id;
  /// The published folder, or why there is none.
  Result<std::filesystem::path> written;
  /// The removal of old ones that follows a successful write.
  Result<void> tidied;
  double seconds = 0.0;
};

/// Writes checkpoints beside training: start() copies the state and returns; a thread of its own
/// writes, publishes and removes old ones. At most one write is in flight. Memory: one copy of the
/// state, kept for the next time.
///
/// Threads: start, wait and cancel from any one owner. The callback runs on the writer's thread,
/// outside any lock; it may call busy(), nothing else of this object. The destructor finishes the
/// write in flight; cancel() first for a quick end.
class AsyncCheckpointWriter {
 public:
  using Callback = std::function<void(const CheckpointOutcome&)>;

  /// `store` outlives the writer. `keep`: how many complete checkpoints stay (at least 1).
  /// `callback` may be empty.
  AsyncCheckpointWriter(const CheckpointStore& store, std::size_t keep, Callback callback = {});
  AsyncCheckpointWriter(const AsyncCheckpointWriter&) = delete;
  AsyncCheckpointWriter& operator=(const AsyncCheckpointWriter&) = delete;
  ~AsyncCheckpointWriter();

  /// Takes a copy of the sections and begins. `overloaded` while the previous write is in flight:
  /// skip this one or wait().
  Result<void> start(CheckpointMeta meta, std::span<const CheckpointSection> sections);
  bool busy() const;
  /// Until nothing is in flight; `timed_out` after `timeout`. Without a timeout it ends when the
  /// write does, or by cancel().
  Result<void> wait(std::optional<Duration> timeout = {});
  /// Asks the write in flight to end at its next block; it then reports `aborted` and leaves
  /// nothing behind.
  void cancel();
  /// The latest outcome; nothing before the first.
  std::optional<CheckpointOutcome> last() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace teson
