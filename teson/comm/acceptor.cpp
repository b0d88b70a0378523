#include "teson/comm/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/core.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "teson/base/log.h"
#include "teson/comm/frames.h"
#include "teson/net/frame.h"

namespace teson::comm {
namespace {

constexpr Duration accept_pause = std::chrono::milliseconds(100);
constexpr std::int64_t wait_ms_max = 60'000;
/// So that strangers cannot fill the log.
constexpr std::uint64_t warnings_max = 20;

Result<Fd> make_eventfd() {
  Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return fail_errno("eventfd for a transport", errno);
  return fd;
}

void signal(const Fd& fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd.get(), &one, sizeof(one));
}

Error epoch_is_over(std::uint64_t epoch, std::uint64_t floor) {
  return {ErrorKind::aborted,
          fmt::format("epoch {} is over: this process is at epoch {} or later", epoch, floor)};
}

void clear(const Fd& fd) {
  std::uint64_t count = 0;
  (void)!::read(fd.get(), &count, sizeof(count));
}

// A whole small frame at once. It fits: nothing else has been sent but the handshake. If the peer is
// gone, the next receive will say so.
void send_notice(net::Socket& socket, net::FrameHeader header, std::string_view text) {
  const auto payload = std::as_bytes(std::span(text.substr(0, notice_bytes_max)));
  header.payload_bytes = payload.size();
  header.payload_checksum = net::frame_checksum(payload);
  const auto encoded = net::encode_frame_header(header);
  std::vector<std::byte> frame(encoded.begin(), encoded.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  (void)socket.send_some(frame);
}

}  // namespace

void send_welcome(net::Socket& socket, std::uint64_t epoch) {
  send_notice(socket, {.kind = static_cast<std::uint16_t>(FrameKind::welcome), .epoch = epoch}, "");
}

void send_refusal(net::Socket& socket, std::uint64_t epoch, const Error& why) {
  send_notice(socket,
              {.kind = static_cast<std::uint16_t>(FrameKind::refused),
               .flags = static_cast<std::uint16_t>(why.kind),
               .epoch = epoch},
              why.message);
}

Result<std::unique_ptr<Acceptor>> Acceptor::start(const HostTransportOptions& options) {
  TESON_TRY(auto listener,
            net::Listener::listen(options.address, {.has_secret = !options.secret.empty()}));
  TESON_TRY(Fd wake, make_eventfd());
  TESON_TRY(Fd arrived, make_eventfd());
  return std::unique_ptr<Acceptor>(
      new Acceptor(options, std::move(listener), std::move(wake), std::move(arrived)));
}

Acceptor::Acceptor(HostTransportOptions options, net::Listener listener, Fd wake, Fd arrived)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      address_(listener_.address()),
      wake_(std::move(wake)),
      arrived_(std::move(arrived)) {
  thread_ = std::jthread([this] {
    ::pthread_setname_np(::pthread_self(), "teson-accept");
    run();
  });
}

Acceptor::~Acceptor() {
  stop_ = true;
  signal(wake_);
  thread_.join();
}

std::vector<Arrival> Acceptor::take(std::uint64_t epoch) {
  clear(arrived_);
  std::vector<Arrival> taken;
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [&](Arrival& arrival) {
    if (arrival.greeting.epoch != epoch) return false;
    taken.push_back(std::move(arrival));
    return true;
  });
  return taken;
}

void Acceptor::refuse_below(std::uint64_t epoch) {
  std::vector<Arrival> late;
  {
    const std::lock_guard lock(mutex_);
    floor_ = std::max(floor_, epoch);
    std::erase_if(held_, [&](Arrival& arrival) {
      if (arrival.greeting.epoch >= epoch) return false;
      late.push_back(std::move(arrival));
      return true;
    });
  }
  signal(wake_);
  for (Arrival& arrival : late) {
    refuse(arrival.socket, epoch_is_over(arrival.greeting.epoch, epoch));
  }
}

void Acceptor::refuse(net::Socket& socket, const Error& reason) {
  ++refused_;
  log_debug("comm", "{}: refused a connection: {}", address().to_string(), reason.message);
  send_refusal(socket, 0, reason);
  socket.close();
}

void Acceptor::run() {
  while (!stop_)
    poll_once();
}

int Acceptor::wait_ms(Instant now) {
  Instant next = now + std::chrono::milliseconds(wait_ms_max);
  for (const HandshakeLink& link : pending_)
    next = std::min(next, link.deadline());
  if (accept_again_ > now) next = std::min(next, accept_again_);
  const std::lock_guard lock(mutex_);
  if (!held_.empty()) next = std::min(next, held_.front().since + options_.held_time_max);
  return static_cast<int>(std::clamp<std::int64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(next - now).count(), 0, wait_ms_max));
}

void Acceptor::poll_once() {
  const SystemClock clock;
  const Instant now = clock.now();
  const bool accepts = accept_again_ <= now;
  polled_.assign({{wake_.get(), POLLIN, 0}, {accepts ? listener_.fd() : -1, POLLIN, 0}});
  for (const HandshakeLink& link : pending_)
    polled_.push_back({link.fd(), link.events(), 0});
  if (::poll(polled_.data(), polled_.size(), wait_ms(now)) < 0) return;
  if (polled_[0].revents != 0) {
    clear(wake_);
    if (!stop_ && !listener_.is_reachable()) listen_again();
  }
  std::size_t index = 2;
  for (auto link = pending_.begin(); link != pending_.end(); ++index) {
    const auto current = link++;
    if (polled_[index].revents != 0) progress(current);
  }
  if (polled_[1].revents != 0) accept_all();
  expire(clock.now());
}

void Acceptor::listen_again() {
  auto listener = net::Listener::listen(address_, {.has_secret = !options_.secret.empty()});
  if (!listener)
    return log_warning("comm", "its socket file is gone; {}", listener.error().describe());
  listener_ = std::move(*listener);
  polled_[1].revents = 0;  // the old one's
}

void Acceptor::accept_all() {
  for (std::size_t turn = 0; turn < pending_max; ++turn) {
    auto accepted = listener_.accept();
    if (!accepted) {
      if (!std::exchange(is_short_, true))
        log_warning("comm", "{}; trying on", accepted.error().describe());
      accept_again_ = SystemClock().now() + accept_pause;
      return;
    }
    if (!*accepted) return;
    is_short_ = false;
    if (pending_.size() >= pending_max) {
      // The oldest has had the most time; a peer of ours needs a few milliseconds.
      ++refused_;
      pending_.pop_front();
    }
    net::HandshakeOptions handshake{.role = net::HandshakeRole::acceptor,
                                    .job_id = options_.job_id,
                                    .purpose = "comm",
                                    .secret = options_.secret,
                                    .body = encode_greeting({.instance = options_.instance})};
    pending_.emplace_back(std::move(**accepted), std::move(handshake),
                          SystemClock().now() + handshake_time_max);
    progress(std::prev(pending_.end()));
  }
}

void Acceptor::progress(std::list<HandshakeLink>::iterator link) {
  const auto done = link->progress();
  if (done && !*done) return;
  if (done) {
    complete(*link);
  } else if (done.error().kind != ErrorKind::disconnected) {
    if (++refused_ <= warnings_max) {
      log_warning("comm", "{}: turned away a connection: {}", address().to_string(),
                  done.error().describe());
    }
  }
  pending_.erase(link);
}

void Acceptor::complete(HandshakeLink& link) {
  const auto greeting = decode_greeting(link.peer_body());
  net::Socket socket = link.take_socket();
  if (!greeting) return refuse(socket, greeting.error());
  if (greeting->size > group_size_max || greeting->from >= greeting->size ||
      greeting->to >= greeting->size) {
    return refuse(socket,
                  {ErrorKind::invalid, fmt::format("impossible group: rank {} to rank {} of {}",
                                                   greeting->from, greeting->to, greeting->size)});
  }
  arrive(std::move(socket), *greeting);
}

void Acceptor::arrive(net::Socket socket, const Greeting& greeting) {
  std::optional<Error> reason;
  {
    const std::lock_guard lock(mutex_);
    if (greeting.epoch < floor_) {
      reason = epoch_is_over(greeting.epoch, floor_);
    } else if (held_.size() >= options_.held_connections_max) {
      reason = Error{ErrorKind::overloaded,
                     fmt::format("{} connections wait here already", held_.size())};
    } else {
      held_.push_back({std::move(socket), greeting, SystemClock().now()});
    }
  }
  if (reason) return refuse(socket, *reason);
  signal(arrived_);
}

void Acceptor::expire(Instant now) {
  std::erase_if(pending_, [now](const HandshakeLink& link) { return link.deadline() <= now; });
  std::vector<Arrival> late;
  {
    const std::lock_guard lock(mutex_);
    while (!held_.empty() && held_.front().since + options_.held_time_max <= now) {
      late.push_back(std::move(held_.front()));
      held_.pop_front();
    }
  }
  for (Arrival& arrival : late) {
    refuse(arrival.socket, {ErrorKind::timed_out, fmt::format("epoch {} did not start here in time",
                                                              arrival.greeting.epoch)});
  }
}

}  // namespace teson::comm
