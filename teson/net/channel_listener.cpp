#include <list>
#include <utility>

#include <fmt/format.h>

#include "teson/base/log.h"
#include "teson/net/channel_state.h"
#include "teson/net/socket.h"

namespace teson::net {

namespace {

/// How long the queue of the kernel keeps new connections while descriptors are short.
constexpr Duration pause_when_short = std::chrono::milliseconds(100);
constexpr int accepts_per_turn = 32;

}  // namespace

class ChannelListener::State : public std::enable_shared_from_this<ChannelListener::State> {
 public:
  State(Loop& loop, Listener listener, ChannelListenerOptions options,
        std::function<void(std::unique_ptr<Channel>)> on_accept)
      : loop_(loop),
        listener_(std::move(listener)),
        options_(std::move(options)),
        on_accept_(std::move(on_accept)) {}

  const Address& address() const { return listener_.address(); }

  void start() {
    loop_.run([this] {
      watch_ = loop_.watch(listener_.fd());
      arm();
    });
  }

  void stop() {
    loop_.run([this] {
      stopped_ = true;
      watch_.cancel();
      pause_.cancel();
      while (!pending_.empty())
        pending_.front()->finish({ErrorKind::aborted, "the listener was closed"});
      listener_.close();
    });
  }

 private:
  void arm() {
    watch_.when_readable([this] { accept(); });
  }

  void accept() {
    const auto self = shared_from_this();
    for (int i = 0; i < accepts_per_turn && !stopped_; ++i) {
      auto accepted = listener_.accept();
      if (!accepted) {
        // Once a shortage, not once a try.
        if (!std::exchange(is_short_, true)) {
          log_warning("net", "accepting at {}: {}; trying on", address().to_string(),
                      accepted.error().describe());
        }
        pause_ = loop_.after(pause_when_short, [this] { arm(); });
        return;
      }
      if (!*accepted) break;
      is_short_ = false;
      authenticate(std::move(**accepted));
    }
    if (!stopped_) arm();
  }

  void authenticate(Socket socket) {
    if (const auto& tls = options_.channel.tls) {
      auto wrapped = tls->wrap(std::move(socket), HandshakeRole::acceptor, Instant());
      if (!wrapped) {
        return log_warning("net", "a connection to {} is dropped: {}", address().to_string(),
                           wrapped.error().describe());
      }
      socket = std::move(*wrapped);
    }
    if (pending_.size() >= options_.unauthenticated_max) {
      pending_.front()->finish(
          {ErrorKind::overloaded,
           fmt::format("more than {} connections without a proof; the oldest is dropped",
                       options_.unauthenticated_max)});
    }
    auto state = std::make_shared<ChannelState>(loop_, std::move(socket), HandshakeRole::acceptor,
                                                options_.channel);
    const auto place = pending_.insert(pending_.end(), state);
    state->authenticate([this, place](const Result<void>& result) {
      const auto self = shared_from_this();
      auto channel = std::unique_ptr<Channel>(new Channel(std::move(*place)));
      pending_.erase(place);
      if (result && !stopped_) {
        on_accept_(std::move(channel));
      } else if (!result) {
        log_debug("net", "connection to {} refused: {}", address().to_string(),
                  result.error().describe());
      }
    });
  }

  Loop& loop_;
  Listener listener_;
  ChannelListenerOptions options_;
  std::function<void(std::unique_ptr<Channel>)> on_accept_;
  Watch watch_;
  Timer pause_;
  std::list<std::shared_ptr<ChannelState>> pending_;
  bool stopped_ = false;
  bool is_short_ = false;  ///< of descriptors, since the last connection
};

Result<std::unique_ptr<ChannelListener>> ChannelListener::listen(
    Loop& loop, const Address& address, ChannelListenerOptions options,
    std::function<void(std::unique_ptr<Channel>)> on_accept) {
  const auto& channel = options.channel;
  const bool authenticated = !channel.handshake.secret.empty() || channel.tls != nullptr;
  TESON_TRY(Listener listener, Listener::listen(address, {.has_secret = authenticated}));
  auto state =
      std::make_shared<State>(loop, std::move(listener), std::move(options), std::move(on_accept));
  state->start();
  return std::unique_ptr<ChannelListener>(new ChannelListener(std::move(state)));
}

ChannelListener::ChannelListener(std::shared_ptr<State> state) : state_(std::move(state)) {}
ChannelListener::~ChannelListener() {
  state_->stop();
}
const Address& ChannelListener::address() const {
  return state_->address();
}

}  // namespace teson::net
