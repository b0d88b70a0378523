#include "teson/net/shared_pool.h"

#include <algorithm>
#include <utility>

#include "teson/base/log.h"

namespace teson::net {

namespace {

constexpr std::size_t granularity = std::size_t{64} << 10;
/// A block may be so many times larger than what it is taken for.
constexpr std::size_t waste_max = 4;

}  // namespace

std::shared_ptr<SharedPool> SharedPool::make(SharedPoolLimits limits) {
  return std::shared_ptr<SharedPool>(new SharedPool(limits));
}

SharedPool& SharedPool::of_process() {
  static const std::shared_ptr<SharedPool> pool = make();
  return *pool;
}

std::shared_ptr<SharedBlock> SharedPool::take(std::size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (auto block = take_idle(bytes)) return lend(std::move(block));
  }
  auto block = make_block(bytes);
  return block ? lend(std::move(block)) : nullptr;
}

std::unique_ptr<SharedBlock> SharedPool::take_idle(std::size_t bytes) {
  auto best = idle_.end();
  for (auto one = idle_.begin(); one != idle_.end(); ++one) {
    const std::size_t size = (*one)->size();
    if (size < bytes || size / waste_max > bytes) continue;
    if (best == idle_.end() || size < (*best)->size()) best = one;
  }
  if (best == idle_.end()) return nullptr;
  auto block = std::move(*best);
  idle_.erase(best);
  --usage_.idle_blocks;
  usage_.idle_bytes -= block->size();
  return block;
}

std::unique_ptr<SharedBlock> SharedPool::make_block(std::size_t bytes) {
  if (bytes > limits_.bytes_max) return nullptr;
  const std::size_t size = (bytes + granularity - 1) / granularity * granularity;
  std::vector<std::unique_ptr<SharedBlock>> dropped;  // unmapped after the lock
  {
    std::lock_guard lock(mutex_);
    const auto fits = [&] {
      return usage_.blocks < limits_.blocks_max && usage_.bytes + size <= limits_.bytes_max;
    };
    if (!fits()) {
      usage_.blocks -= usage_.idle_blocks;
      usage_.bytes -= usage_.idle_bytes;
      usage_.idle_blocks = usage_.idle_bytes = 0;
      dropped.swap(idle_);
    }
    if (!fits()) return nullptr;
    ++usage_.blocks;
    usage_.bytes += size;
  }
  auto memory = SharedMemory::make(size);
  if (memory) return std::make_unique<SharedBlock>(std::move(*memory));
  log_warning("net", "a large payload goes through the socket instead of shared memory: {}",
              memory.error().describe());
  std::lock_guard lock(mutex_);
  --usage_.blocks;
  usage_.bytes -= size;
  return nullptr;
}

std::shared_ptr<SharedBlock> SharedPool::lend(std::unique_ptr<SharedBlock> block) {
  return {block.release(), [pool = weak_from_this()](SharedBlock* returned) {
            std::unique_ptr<SharedBlock> owned(returned);
            if (const auto living = pool.lock()) living->give_back(std::move(owned));
          }};
}

void SharedPool::give_back(std::unique_ptr<SharedBlock> block) {
  const std::size_t size = block->size();
  std::lock_guard lock(mutex_);
  if (!block->retired() && usage_.idle_bytes + size <= limits_.idle_bytes_max) {
    ++usage_.idle_blocks;
    usage_.idle_bytes += size;
    idle_.push_back(std::move(block));
    return;
  }
  --usage_.blocks;
  usage_.bytes -= size;
}

SharedPool::Usage SharedPool::usage() const {
  std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace teson::net
