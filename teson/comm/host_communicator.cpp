#include "teson/comm/host_communicator.h"

#include <algorithm>

#include <fmt/core.h>
#include <pthread.h>

#include "teson/base/check.h"
#include "teson/comm/exchange.h"
#include "teson/comm/reduce_jobs.h"

namespace teson::comm {
namespace {

Work refused(std::string message) {
  return ended_work(fail(ErrorKind::invalid, std::move(message)));
}

}  // namespace

Result<std::unique_ptr<HostCommunicator>> HostCommunicator::start(EngineOptions options) {
  TESON_CHECK(options.rank >= 0 && static_cast<std::size_t>(options.rank) < options.sockets.size(),
              options.rank, options.sockets.size());
  TESON_TRY(auto queue, CommandQueue::make());
  return std::unique_ptr<HostCommunicator>(
      new HostCommunicator(std::move(options), std::move(queue)));
}

HostCommunicator::HostCommunicator(EngineOptions options, std::shared_ptr<CommandQueue> queue)
    : rank_(options.rank),
      size_(static_cast<int>(options.sockets.size())),
      epoch_(options.epoch),
      queue_(std::move(queue)) {
  thread_ = std::jthread([engine = std::make_unique<Engine>(std::move(options), queue_)] {
    ::pthread_setname_np(::pthread_self(), "teson-comm");
    engine->run();
  });
}

HostCommunicator::~HostCommunicator() {
  queue_->close();
}

Work HostCommunicator::run(std::unique_ptr<Operation> operation) {
  Command command;
  command.operation = std::move(operation);
  return queue_->push(std::move(command));
}

Work HostCommunicator::reduce(ReduceJob job) {
  return run(std::make_unique<TiledReduce>(std::move(job), staging_, queue_->interrupted()));
}

Work HostCommunicator::all_reduce(std::span<float> data) {
  return reduce(all_reduce_job(rank_, size_, data));
}

Work HostCommunicator::reduce_scatter(std::span<const float> in, std::span<float> out) {
  auto job = reduce_scatter_job(rank_, size_, in, out);
  return job ? reduce(std::move(*job)) : ended_work(fail(job.error()));
}

Work HostCommunicator::reduce_parts(ReduceParts parts) {
  auto job = reduce_parts_job(rank_, size_, std::move(parts));
  return job ? reduce(std::move(*job)) : ended_work(fail(job.error()));
}

Work HostCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  if (out.size() != in.size() * static_cast<std::size_t>(size_)) {
    return refused(
        fmt::format("all_gather among {} ranks: in has {} bytes, out {}; expected {} in out", size_,
                    in.size(), out.size(), in.size() * static_cast<std::size_t>(size_)));
  }
  std::vector<Transfer> transfers;
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(size_); ++peer) {
    transfers.push_back({in, out.subspan(peer * in.size(), in.size())});
  }
  return run(std::make_unique<Exchange>(rank_, std::move(transfers)));
}

Work HostCommunicator::all_to_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t share = in.size() / static_cast<std::size_t>(size_);
  if (in.size() != out.size() || in.size() != share * static_cast<std::size_t>(size_)) {
    return refused(fmt::format(
        "all_to_all among {} ranks: in has {} bytes, out {}; expected the same multiple of {}",
        size_, in.size(), out.size(), size_));
  }
  std::vector<Transfer> transfers;
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(size_); ++peer) {
    transfers.push_back({in.subspan(peer * share, share), out.subspan(peer * share, share)});
  }
  return run(std::make_unique<Exchange>(rank_, std::move(transfers)));
}

Work HostCommunicator::broadcast(std::span<std::byte> data, int root) {
  if (root < 0 || root >= size_)
    return refused(fmt::format("broadcast: root {} is not a rank of a group of {}", root, size_));
  std::vector<Transfer> transfers(static_cast<std::size_t>(size_));
  if (rank_ == root) {
    for (Transfer& transfer : transfers)
      transfer.to = data;
  } else {
    transfers[static_cast<std::size_t>(root)].from = data;
  }
  return run(std::make_unique<Exchange>(rank_, std::move(transfers)));
}

Work HostCommunicator::barrier() {
  const Transfer nothing{std::span<const std::byte>{}, std::span<std::byte>{}};
  return run(std::make_unique<Exchange>(
      rank_, std::vector<Transfer>(static_cast<std::size_t>(size_), nothing)));
}

Work HostCommunicator::message(Command command) {
  if (command.peer < 0 || command.peer >= size_ || command.peer == rank_) {
    return refused(
        fmt::format("send and recv: expected another rank of a group of {}, found {} at rank {}",
                    size_, command.peer, rank_));
  }
  if (chunks_of(std::max(command.source.size(), command.target.size())) >= items_max) {
    return refused(
        fmt::format("send and recv: at most {} bytes at once", (items_max - 1) * chunk_bytes));
  }
  return queue_->push(std::move(command));
}

Work HostCommunicator::send(std::span<const std::byte> data, int to, std::uint32_t tag) {
  Command command;
  command.kind = Command::Kind::send;
  command.peer = to;
  command.tag = tag;
  command.source = data;
  return message(std::move(command));
}

Work HostCommunicator::recv(std::span<std::byte> data, int from, std::uint32_t tag) {
  Command command;
  command.kind = Command::Kind::receive;
  command.peer = from;
  command.tag = tag;
  command.target = data;
  return message(std::move(command));
}

}  // namespace teson::comm
