#include "teson/comm/host_transport.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/comm/acceptor.h"
#include "teson/comm/group_connect.h"
#include "teson/comm/host_communicator.h"

namespace teson::comm {
namespace {

/// As much as the system allows: fewer wake-ups for a tile.
constexpr int unix_buffer_bytes = 4 << 20;

}  // namespace

struct HostTransport::Impl {
  struct Running {
    std::uint64_t epoch;
    std::weak_ptr<CommandQueue> communicator;
  };

  HostTransportOptions options;
  Fd cancel;
  std::unique_ptr<Acceptor> acceptor;
  std::mutex mutex;
  std::uint64_t floor = 0;  ///< epochs below it are over
  Error floor_error;
  std::optional<std::uint64_t> connecting;  ///< the epoch of the running connect
  std::optional<Error> cancelled;           ///< why it must end
  std::vector<Running> running;

  Result<void> check(const GroupOptions& group) const;
  Result<void> begin(std::uint64_t epoch);
  Result<std::unique_ptr<Communicator>> finish(const GroupOptions& group,
                                               Result<std::vector<net::Socket>> sockets);
  void cancel_connect(const Error& error);
};

Result<void> HostTransport::Impl::check(const GroupOptions& group) const {
  const std::size_t size = group.addresses.size();
  if (size == 0 || size > group_size_max || group.rank < 0 ||
      static_cast<std::size_t>(group.rank) >= size) {
    return fail(ErrorKind::invalid, fmt::format("group of epoch {}: rank {} with {} addresses; "
                                                "expected a rank below their number, at most {}",
                                                group.epoch, group.rank, size, group_size_max));
  }
  if (!group.instances.empty() && group.instances.size() != size) {
    return fail(ErrorKind::invalid, fmt::format("group of epoch {}: {} instances for {} addresses",
                                                group.epoch, group.instances.size(), size));
  }
  for (const net::Address& address : group.addresses) {
    if (options.secret.empty() && size > 1 && !address.is_loopback()) {
      return fail(
          ErrorKind::invalid,
          fmt::format(
              "{}: without a job secret only this machine may be connected to; set the secret",
              address.to_string()));
    }
  }
  return {};
}

Result<void> HostTransport::Impl::begin(std::uint64_t epoch) {
  const std::lock_guard lock(mutex);
  if (epoch < floor)
    return fail(
        floor_error.in(fmt::format("epoch {} is over, {} is the lowest possible", epoch, floor)));
  if (connecting)
    return fail(ErrorKind::invalid, fmt::format("connect runs already, for epoch {}", *connecting));
  connecting = epoch;
  cancelled.reset();
  std::uint64_t count = 0;
  (void)!::read(cancel.get(), &count, sizeof(count));
  return {};
}

void HostTransport::Impl::cancel_connect(const Error& error) {
  if (!connecting || cancelled) return;
  cancelled = error;
  const std::uint64_t one = 1;
  (void)!::write(cancel.get(), &one, sizeof(one));
}

Result<std::unique_ptr<Communicator>> HostTransport::Impl::finish(
    const GroupOptions& group, Result<std::vector<net::Socket>> sockets) {
  const std::lock_guard lock(mutex);
  connecting.reset();
  if (cancelled) return fail(*cancelled);
  if (!sockets) return fail(sockets.error());
  for (const net::Socket& socket : *sockets) {
    if (!socket || socket.peer().family() != net::Address::Family::unix_socket) continue;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &unix_buffer_bytes, sizeof(unix_buffer_bytes));
  }
  TESON_TRY(auto communicator,
            HostCommunicator::start({.epoch = group.epoch,
                                     .rank = group.rank,
                                     .sockets = std::move(*sockets),
                                     .addresses = group.addresses,
                                     .on_peer_lost = group.on_peer_lost,
                                     .early_message_bytes_max = group.early_message_bytes_max}));
  floor = std::max(floor, group.epoch + 1);
  floor_error = {ErrorKind::invalid, "each epoch is connected once"};
  std::erase_if(running, [](const Running& one) { return one.communicator.expired(); });
  running.push_back({group.epoch, communicator->control()});
  return communicator;
}

Result<std::unique_ptr<HostTransport>> HostTransport::listen(HostTransportOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->cancel = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!impl->cancel) return fail_errno("eventfd for a transport", errno);
  if (options.job_id.size() > net::job_id_bytes_max) {
    return fail(ErrorKind::invalid, fmt::format("job id of {} bytes, at most {} are possible",
                                                options.job_id.size(), net::job_id_bytes_max));
  }
  TESON_TRY(impl->acceptor, Acceptor::start(options));
  impl->options = std::move(options);
  return std::unique_ptr<HostTransport>(new HostTransport(std::move(impl)));
}

HostTransport::HostTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HostTransport::~HostTransport() = default;

const net::Address& HostTransport::address() const {
  return impl_->acceptor->address();
}
std::uint64_t HostTransport::refused_connections() const {
  return impl_->acceptor->refused();
}

Result<std::unique_ptr<Communicator>> HostTransport::connect(GroupOptions options) {
  TESON_TRY_VOID(impl_->check(options));
  TESON_TRY_VOID(impl_->begin(options.epoch));
  impl_->acceptor->refuse_below(options.epoch);
  auto sockets = connect_group(options, impl_->options, *impl_->acceptor, impl_->cancel.get());
  auto communicator = impl_->finish(options, std::move(sockets));
  if (communicator) impl_->acceptor->refuse_below(options.epoch + 1);
  return communicator;
}

void HostTransport::abort_connect(Error error) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancel_connect(error);
}

void HostTransport::abort_below(std::uint64_t epoch, Error error) {
  std::vector<std::shared_ptr<CommandQueue>> ending;
  {
    const std::lock_guard lock(impl_->mutex);
    if (epoch >= impl_->floor) {
      impl_->floor = epoch;
      impl_->floor_error = error;
    }
    if (impl_->connecting && *impl_->connecting < epoch) impl_->cancel_connect(error);
    for (const auto& [running_epoch, communicator] : impl_->running) {
      if (auto queue = running_epoch < epoch ? communicator.lock() : nullptr)
        ending.push_back(std::move(queue));
    }
  }
  for (const auto& queue : ending)
    queue->abort(error);
  impl_->acceptor->refuse_below(epoch);
}

}  // namespace teson::comm
