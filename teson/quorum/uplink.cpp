#include "teson/quorum/uplink.h"

#include <algorithm>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/log.h"
#include "teson/net/channel.h"

namespace teson::quorum {
namespace {

constexpr std::size_t outgoing_bytes_max = std::size_t{16} << 20;

}  // namespace

Uplink::Uplink(net::Loop& loop, UplinkOptions options)
    : loop_(loop), options_(std::move(options)), cancel_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESON_CHECK(cancel_.get() >= 0);
}

void Uplink::start() {
  thread_ = std::thread([this] { run(); });
}

Uplink::~Uplink() {
  close();
}

bool Uplink::send(const ToLighthouse& message) {
  std::shared_ptr<net::Channel> channel;
  {
    const std::lock_guard lock(mutex_);
    channel = channel_;
  }
  if (!channel) return false;
  Packed packed = pack(message);
  const Result<void> sent = channel->send(packed.kind, std::move(packed.payload));
  if (!sent && sent.error().kind == ErrorKind::overloaded) channel->close();
  return sent.has_value();
}

bool Uplink::is_up() const {
  const std::lock_guard lock(mutex_);
  return channel_ != nullptr && !down_;
}

void Uplink::renew() {
  std::shared_ptr<net::Channel> channel;
  {
    const std::lock_guard lock(mutex_);
    channel = channel_;
  }
  if (channel) channel->close();
}

void Uplink::stop_soon() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(cancel_.get(), &one, sizeof(one));
  changed_.notify_all();
}

bool Uplink::wait_down(Instant deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return channel_ == nullptr || down_; });
}

void Uplink::close() {
  stop_soon();
  renew();
  if (thread_.joinable()) thread_.join();
}

bool Uplink::wait_before_retry(Duration delay) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, delay, [this] { return stopping_; });
  return !stopping_;
}

std::shared_ptr<net::Channel> Uplink::connect_once(int* refusals) {
  net::ChannelOptions options;
  options.handshake.job_id = options_.job;
  options.handshake.purpose = "quorum";
  options.handshake.secret = options_.secret;
  options.payload_bytes_max = message_bytes_max;
  options.outgoing_bytes_max = outgoing_bytes_max;
  const Instant deadline = std::chrono::steady_clock::now() + connect_max;
  auto connected = net::Channel::connect(loop_, options_.lighthouse, std::move(options), deadline,
                                         cancel_.get());
  if (connected) {
    *refusals = 0;
    return std::move(*connected);
  }
  const Error error = connected.error().in("connecting to the lighthouse");
  if (error.kind != ErrorKind::invalid) {
    *refusals = 0;
  } else if (++*refusals >= refusals_max) {
    stop_soon();
    options_.on_refused(error);
    return nullptr;
  }
  if (options_.on_unreachable) options_.on_unreachable(connected.error());
  return nullptr;
}

void Uplink::run() {
  Duration delay = retry_first;
  int refusals = 0;
  while (true) {
    std::shared_ptr<net::Channel> channel = connect_once(&refusals);
    if (!channel) {
      if (!wait_before_retry(delay)) return;
      delay = std::min(2 * delay, retry_last);
      continue;
    }
    Packed first = pack(options_.make_first());
    const bool is_queued = channel->send(first.kind, std::move(first.payload)).has_value();
    {
      const std::lock_guard lock(mutex_);
      // Whoever stopped this meanwhile saw no channel to close, and waits for this thread.
      if (stopping_) return;
      channel_ = channel;
      down_ = !is_queued;
    }
    options_.on_link(true);
    channel->start(
        {.on_open = {},
         .on_message =
             [this](net::Message message) {
               auto unpacked = unpack_from_lighthouse(message.kind, message.payload.text());
               if (unpacked) return options_.on_message(*unpacked);
               log_warning("quorum", "from the lighthouse: {}", unpacked.error().describe());
             },
         .on_closed =
             [this](const Error&) {
               const std::lock_guard lock(mutex_);
               down_ = true;
               changed_.notify_all();
             }});
    const Instant began = std::chrono::steady_clock::now();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return down_; });
      channel_.reset();
      changed_.notify_all();
    }
    channel.reset();
    options_.on_link(false);
    // A link that lived is made again at once; one that is refused again and again is not hammered
    // at.
    if (std::chrono::steady_clock::now() - began > retry_last) delay = retry_first;
    if (!wait_before_retry(delay)) return;
    delay = std::min(2 * delay, retry_last);
  }
}

}  // namespace teson::quorum
