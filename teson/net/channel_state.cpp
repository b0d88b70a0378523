#include "teson/net/channel_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "teson/base/check.h"
#include "teson/base/world.h"

namespace teson::net {

namespace {

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

ChannelState::ChannelState(Loop& loop, Socket socket, HandshakeRole role, ChannelOptions options)
    : loop_(loop),
      socket_(std::move(socket)),
      peer_(socket_.peer()),
      endpoint_(socket_.endpoint()),
      options_(std::move(options)),
      // Behind the socket of a TLS connection stands a thread, not the peer; a simulated network carries bytes alone.
      takes_descriptors_(is_unix_socket(socket_.fd()) && World::current() == nullptr &&
                         socket_.peer().family() != Address::Family::tcp) {
  options_.handshake.role = role;
  // It ends with its peer, and lends memory, which belongs to one connection.
  if (peer_.family() == Address::Family::unix_socket) options_.resumable = false;
}

std::string ChannelState::peer_name() const {
  return peer().family() == Address::Family::none ? "the peer" : peer().to_string();
}

void ChannelState::set_open(std::vector<std::byte> peer_body) {
  peer_body_ = std::move(peer_body);
  stage_ = Stage::open;
  std::lock_guard lock(mutex_);
  may_write_ = true;
}

void ChannelState::start(ChannelCallbacks callbacks) {
  auto shared = std::make_shared<const ChannelCallbacks>(std::move(callbacks));
  loop_.post([self = shared_from_this(), shared = std::move(shared)] {
    TESON_CHECK(!self->callbacks_ && "a channel is started once");
    self->callbacks_ = shared;
    self->begin();
  });
}

void ChannelState::begin() {
  if (stage_ == Stage::ended) {
    std::optional<Error> error;
    {
      std::lock_guard lock(mutex_);
      error = closed_;
    }
    const auto callbacks = std::exchange(callbacks_, nullptr);
    if (callbacks->on_closed) callbacks->on_closed(*error);
  } else if (stage_ == Stage::open) {
    const auto callbacks = callbacks_;
    if (callbacks->on_open) callbacks->on_open();
    if (stage_ == Stage::open) begin_reading();
  } else {
    authenticate([this](const Result<void>& result) {
      if (result) begin();
    });
  }
}

void ChannelState::authenticate(std::function<void(const Result<void>&)> done) {
  TESON_CHECK(loop_.on_loop_thread() && stage_ == Stage::fresh);
  stage_ = Stage::handshake;
  authenticated_ = std::move(done);
  handshake_ = std::make_unique<Handshake>(options_.handshake);
  deadline_ = loop_.after(options_.handshake_deadline, [this] {
    finish(
        {ErrorKind::timed_out,
         fmt::format("handshake with {}: no proof in {:.0f} ms; it is silent, or not one of ours",
                     peer_name(), to_ms(options_.handshake_deadline))});
  });
  watch_ = loop_.watch(socket_.fd());
  step_handshake();
}

void ChannelState::step_handshake() {
  const auto self = shared_from_this();
  auto result = run_handshake_step();
  if (!result) return finish(std::move(result).error().in("handshake with " + peer_name()));
  if (!handshake_->done()) {
    watch_.when_readable([this] { step_handshake(); });
    return;
  }
  deadline_.cancel();
  std::vector<std::byte> body = handshake_->peer_body();
  handshake_.reset();
  set_open(std::move(body));
  {
    // What was sent before the channel was open.
    std::lock_guard lock(mutex_);
    if (!queue_.empty() && !write_armed_) arm_write_locked();
  }
  handshake_ended({});
}

void ChannelState::handshake_ended(const Result<void>& result) {
  if (const auto done = std::exchange(authenticated_, nullptr)) done(result);
}

Result<void> ChannelState::run_handshake_step() {
  const auto send_output = [&]() -> Result<void> {
    const auto output = handshake_->take_output();
    if (output.empty()) return {};
    // A handshake fits into any socket buffer, which nothing else has used yet.
    TESON_TRY(const std::size_t sent, socket_.send_some(output));
    if (sent != output.size()) {
      return fail(ErrorKind::failed,
                  fmt::format("expected room for {} bytes in the socket buffer, found {}",
                              output.size(), sent));
    }
    return {};
  };
  std::vector<std::byte> bytes;
  while (true) {
    TESON_TRY_VOID(send_output());
    if (handshake_->done()) return {};
    bytes.resize(handshake_->bytes_wanted());
    TESON_TRY(const std::size_t received, socket_.receive_some(bytes));
    if (received == 0) return {};
    if (auto fed = handshake_->feed(std::span(bytes).first(received)); !fed) {
      (void)send_output();
      return fed;
    }
  }
}

void ChannelState::detach() {
  loop_.run([this] {
    reclaim();
    callbacks_.reset();
    authenticated_ = nullptr;
    finish({ErrorKind::aborted, "the channel was dropped here"});
  });
}

void ChannelState::finish(Error error) {
  if (stage_ == Stage::ended) return;
  const auto self = shared_from_this();
  reclaim();
  stage_ = Stage::ended;
  deadline_.cancel();
  watch_.cancel();
  gate_.reset();
  write_watch_.cancel();
  write_fd_.reset();
  {
    std::lock_guard lock(mutex_);
    // close() may have said why already.
    if (!closed_) closed_ = std::move(error);
    error = *closed_;
    if (error.kind == ErrorKind::aborted) say_ended_locked();
    may_write_ = false;
    queue_.clear();
    queued_bytes_ = 0;
    kept_.clear();
    kept_bytes_ = 0;
    // The peer may still be reading, and can no longer say when it is done.
    for (const auto& [sequence, payload] : lent_)
      payload.block()->retire();
    lent_.clear();
    lent_bytes_ = 0;
    socket_.close();
  }
  drained_.notify_all();
  filling_ = Buffer();
  descriptors_.clear();
  handshake_ended(Failure(error));
  const auto callbacks = std::exchange(callbacks_, nullptr);
  if (callbacks && callbacks->on_closed) callbacks->on_closed(error);
}

}  // namespace teson::net
