#include "teson/net/redial.h"

#include <algorithm>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>

#include "teson/net/socket.h"

namespace teson::net {

namespace {

constexpr Duration first_pause = std::chrono::milliseconds(5);
constexpr Duration pause_max = std::chrono::milliseconds(100);
/// A connection that has no answer after this is begun anew: its first packet may be lost. The handshake may take what is left.
constexpr Duration connect_max = std::chrono::milliseconds(200);

Result<std::unique_ptr<Channel>> reach(Loop& loop, const Dial& dial, Instant deadline,
                                       int cancel_fd) {
  for (Duration pause = first_pause;; pause = std::min(2 * pause, pause_max)) {
    auto socket = connect(dial.address, std::min(deadline, now() + connect_max), cancel_fd);
    // Nobody listens there any more.
    if (!socket && socket.error().kind == ErrorKind::disconnected)
      return Failure(std::move(socket).error());
    auto channel = std::move(socket).and_then([&](Socket connected) {
      return Channel::open(loop, std::move(connected), HandshakeRole::initiator, dial.options,
                           deadline, cancel_fd);
    });
    // A handshake that fails may have been cut or damaged as the channel was.
    if (channel || channel.error().kind == ErrorKind::aborted || now() + pause >= deadline)
      return channel;
    (void)wait_for(cancel_fd, POLLIN, now() + pause);
  }
}

}  // namespace

struct Redial::Shared {
  Fd cancel;
  Done done;  ///< loop's thread
};

Redial::Redial(Loop& loop, const Dial& dial, Instant deadline, Done done)
    : loop_(loop),
      shared_(std::make_shared<Shared>(
          Shared{Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), std::move(done)})) {
  thread_ = Thread("teson-redial", [&loop, shared = shared_, dial, deadline] {
    auto channel = std::make_shared<Result<std::unique_ptr<Channel>>>(
        reach(loop, dial, deadline, shared->cancel.get()));
    // Also a channel that nobody wants any more ends there.
    loop.post([shared, channel] {
      if (const Done told = std::exchange(shared->done, {})) told(std::move(*channel));
    });
  });
}

Redial::~Redial() {
  loop_.run([this] { shared_->done = {}; });
  ::eventfd_write(shared_->cancel.get(), 1);
  thread_.join();
}

}  // namespace teson::net
