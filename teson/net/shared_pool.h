#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "teson/net/shared_memory.h"

namespace teson::net {

/// Shared memory that is used again and again; see SharedPool.
class SharedBlock {
 public:
  explicit SharedBlock(SharedMemory memory) : memory_(std::move(memory)) {}

  std::size_t size() const { return memory_.bytes().size(); }
  std::span<std::byte> writable() { return memory_.writable(); }
  std::span<const std::byte> bytes() const { return memory_.bytes(); }
  int fd() const { return memory_.fd(); }
  /// Somebody may go on reading it who can no longer be asked: nobody writes it again. Threads:
  /// any.
  void retire() { retired_ = true; }
  bool retired() const { return retired_; }

 private:
  SharedMemory memory_;
  std::atomic<bool> retired_ = false;
};

struct SharedPoolLimits {
  std::size_t bytes_max = std::size_t{1} << 30;         ///< of all blocks
  std::size_t idle_bytes_max = std::size_t{256} << 20;  ///< of those that nobody uses
  std::size_t blocks_max = 128;                         ///< each has a descriptor
};

/// Blocks of shared memory for large payloads. Fresh memory costs more than the copy into it (every
/// page is made and zeroed), so blocks are kept. Threads: any.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  static std::shared_ptr<SharedPool> make(SharedPoolLimits limits = {});
  /// The one that payloads of this process come from.
  static SharedPool& of_process();

  /// A block of at least so many bytes, the caller's until its last holder drops it. Null: a bound
  /// is reached, or the system has none; the caller then takes ordinary memory.
  std::shared_ptr<SharedBlock> take(std::size_t bytes);

  struct Usage {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    std::size_t idle_blocks = 0;
    std::size_t idle_bytes = 0;
  };
  Usage usage() const;

 private:
  explicit SharedPool(SharedPoolLimits limits) : limits_(limits) {}
  /// Under mutex_.
  std::unique_ptr<SharedBlock> take_idle(std::size_t bytes);
  std::unique_ptr<SharedBlock> make_block(std::size_t bytes);
  void give_back(std::unique_ptr<SharedBlock> block);
  std::shared_ptr<SharedBlock> lend(std::unique_ptr<SharedBlock> block);

  const SharedPoolLimits limits_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SharedBlock>> idle_;
  Usage usage_;
};

}  // namespace teson::net
