#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include "teson/comm/communicator.h"

namespace teson::comm {

/// The end of an operation, waited for by callers and set once by whoever runs it.
struct Work::State {
  mutable std::mutex mutex;
  mutable std::condition_variable ended;
  std::optional<Result<void>> result;
  std::shared_ptr<std::atomic<std::size_t>>
      unfinished;  ///< counts one less when this ends; may be null

  /// The first result stays.
  void finish(Result<void> outcome);
};

/// A Work that has already ended.
Work ended_work(Result<void> outcome);

}  // namespace teson::comm
