#pragma once

#include <memory>
#include <thread>

#include "teson/comm/command_queue.h"
#include "teson/comm/communicator.h"
#include "teson/comm/engine.h"

namespace teson::comm {

/// A Communicator over stream sockets between processes, with a thread of its own. After the first
/// failure of an operation, `disconnected` or any other, it has ended: all others fail with the
/// same error, and only a new epoch helps. The destructor ends what still runs with `aborted`,
/// tells the peers that this rank leaves, and joins the thread.
class HostCommunicator final : public Communicator {
 public:
  /// `options.sockets` by rank: connected ones, that of the own rank empty.
  static Result<std::unique_ptr<HostCommunicator>> start(EngineOptions options);
  ~HostCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::uint64_t epoch() const override { return epoch_; }

  Work all_reduce(std::span<float> data) override;
  Work reduce_scatter(std::span<const float> in, std::span<float> out) override;
  Work all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  Work all_to_all(std::span<const std::byte> in, std::span<std::byte> out) override;
  Work broadcast(std::span<std::byte> data, int root) override;
  Work send(std::span<const std::byte> data, int to, std::uint32_t tag) override;
  Work recv(std::span<std::byte> data, int from, std::uint32_t tag) override;
  Work barrier() override;
  Work reduce_parts(ReduceParts parts) override;
  void abort(Error error) override { queue_->abort(std::move(error)); }

  /// Through it others may abort this communicator, also after its destruction.
  std::weak_ptr<CommandQueue> control() const { return queue_; }

 private:
  HostCommunicator(EngineOptions options, std::shared_ptr<CommandQueue> queue);
  Work run(std::unique_ptr<Operation> operation);
  Work reduce(ReduceJob job);
  Work message(Command command);

  int rank_;
  int size_;
  std::uint64_t epoch_;
  std::shared_ptr<CommandQueue> queue_;
  Staging staging_;  ///< used by the thread alone
  std::jthread thread_;
};

}  // namespace teson::comm
