#include "teson/net/tls.h"

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "teson/base/log.h"
#include "teson/net/tls_tunnel.h"

namespace teson::net {

namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

/// How often connections that are ending are looked at.
constexpr int last_words_interval_ms = 100;
constexpr Duration refusal_log_interval = std::chrono::seconds(1);
/// What was said before the end may take so long.
constexpr Duration last_words_max = std::chrono::seconds(1);

constexpr std::pair<const char*, std::string TlsFiles::*> variables[] = {
    {"TESON_TLS_CERT", &TlsFiles::certificate},
    {"TESON_TLS_KEY", &TlsFiles::key},
    {"TESON_TLS_CA", &TlsFiles::authority},
};

Result<ContextPtr> load_context(const TlsFiles& files) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  if (!context) return fail(ErrorKind::failed, "TLS: " + openssl_errors());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  const auto refused = [](const std::string& file, const std::string& what) {
    return fail(ErrorKind::invalid,
                fmt::format("{}: expected {}: {}", file, what, openssl_errors()));
  };
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1)
    return refused(files.certificate, "a certificate in PEM form");
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return refused(files.key, "the key of " + files.certificate + " in PEM form");
  if (SSL_CTX_load_verify_locations(context.get(), files.authority.c_str(), nullptr) != 1)
    return refused(files.authority, "the certificate of an authority in PEM form");
  return context;
}

}  // namespace

Result<TlsFiles> TlsFiles::from_environment() {
  TlsFiles files;
  std::string set, missing;
  for (const auto& [name, member] : variables) {
    const char* const value = std::getenv(name);
    if (value != nullptr) files.*member = value;
    auto& names = (files.*member).empty() ? missing : set;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (!set.empty() && !missing.empty()) {
    return fail(ErrorKind::invalid,
                fmt::format("{} is set, but not {}: TLS needs a certificate, its key, and the "
                            "authority's certificate",
                            set, missing));
  }
  return files;
}

/// The thread that encrypts. Connections come by a queue; each belongs to the thread from then on.
class Tls::Pump {
 public:
  Pump(ContextPtr context, Fd wake) : context_(std::move(context)), wake_(std::move(wake)) {
    thread_ = std::jthread([this] { run(); });
  }
  ~Pump() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ::eventfd_write(wake_.get(), 1);
  }

  Result<void> add(Socket encrypted, HandshakeRole role, Fd plain, TlsTunnel::Proven proven) {
    TlsTunnel::SslPtr ssl(SSL_new(context_.get()));
    if (!ssl) return fail(ErrorKind::failed, "TLS: " + openssl_errors());
    if (role == HandshakeRole::acceptor)
      proven = [this](const Result<void>& result) { note_refused(result); };
    auto tunnel = std::make_unique<TlsTunnel>(std::move(ssl), role, std::move(encrypted),
                                              std::move(plain), std::move(proven));
    {
      std::lock_guard lock(mutex_);
      arrived_.push_back(std::move(tunnel));
    }
    ::eventfd_write(wake_.get(), 1);
    return {};
  }

 private:
  void run() {
    ::pthread_setname_np(::pthread_self(), "teson-tls");
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::vector<std::unique_ptr<TlsTunnel>> tunnels;
    std::vector<pollfd> polled;
    std::optional<Instant> end;
    while (true) {
      if (!take_arrived(tunnels) && !end) end = SystemClock().now() + last_words_max;
      std::erase_if(tunnels, [](const auto& tunnel) { return !tunnel->step(); });
      if (end && (tunnels.empty() || SystemClock().now() >= *end)) return;
      polled.assign(1, {wake_.get(), POLLIN, 0});
      int timeout_ms = end ? last_words_interval_ms : -1;
      for (const auto& tunnel : tunnels) {
        const auto add = [&](int fd, short events) {
          polled.push_back({events == 0 ? -1 : fd, events, 0});
        };
        add(tunnel->encrypted_fd(), tunnel->encrypted_events());
        add(tunnel->plain_fd(), tunnel->plain_events());
        if (tunnel->deadline()) timeout_ms = last_words_interval_ms;
      }
      if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) continue;
      for (std::size_t i = 0; i < tunnels.size(); ++i) {
        if ((polled[2 * i + 2].revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0)
          tunnels[i]->plain_closed();
      }
    }
  }

  /// Pump's thread. Strangers do not fill the log.
  void note_refused(const Result<void>& result) {
    const Instant now = SystemClock().now();
    if (result || now < quiet_until_) return;
    quiet_until_ = now + refusal_log_interval;
    log_warning("net", "a connection was refused: {}", result.error().message);
  }

  /// False: nothing more will come.
  bool take_arrived(std::vector<std::unique_ptr<TlsTunnel>>& tunnels) {
    eventfd_t count = 0;
    (void)::eventfd_read(wake_.get(), &count);
    std::lock_guard lock(mutex_);
    for (auto& tunnel : arrived_)
      tunnels.push_back(std::move(tunnel));
    arrived_.clear();
    return !stopping_;
  }

  const ContextPtr context_;
  const Fd wake_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<TlsTunnel>> arrived_;
  bool stopping_ = false;
  Instant quiet_until_{};
  std::jthread thread_;
};

Tls::Tls() = default;
Tls::~Tls() = default;

Result<std::shared_ptr<Tls>> Tls::load(const TlsFiles& files) {
  TESON_TRY(ContextPtr context, load_context(files));
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd", errno);
  std::shared_ptr<Tls> tls(new Tls);
  tls->pump_ = std::make_unique<Pump>(std::move(context), std::move(wake));
  return tls;
}

Result<std::shared_ptr<Tls>> Tls::from_environment() {
  TESON_TRY(const TlsFiles files, TlsFiles::from_environment());
  if (files.certificate.empty()) return std::shared_ptr<Tls>();
  return load(files);
}

Result<Socket> Tls::wrap(Socket socket, HandshakeRole role, Instant deadline, int cancel_fd) {
  if (socket.peer().family() != Address::Family::tcp) return socket;
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
    return fail_errno("socketpair for TLS", errno);
  Socket plain(Fd{fds[0]}, socket.peer(), socket.endpoint());
  Fd inner(fds[1]);
  if (role == HandshakeRole::acceptor) {
    TESON_TRY_VOID(pump_->add(std::move(socket), role, std::move(inner), {}));
    return plain;
  }
  // Shared with the pump, which may tell when nobody waits any more.
  struct Proof {
    Fd told{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::mutex mutex;
    Result<void> result;
  };
  const auto proof = std::make_shared<Proof>();
  if (!proof->told) return fail_errno("eventfd", errno);
  const std::string peer = socket.peer().to_string();
  TESON_TRY_VOID(
      pump_->add(std::move(socket), role, std::move(inner), [proof](const Result<void>& result) {
        {
          std::lock_guard lock(proof->mutex);
          proof->result = result;
        }
        ::eventfd_write(proof->told.get(), 1);
      }));
  if (auto waited = wait_for(proof->told.get(), POLLIN, deadline, cancel_fd); !waited)
    return fail(std::move(waited).error().in(peer + ": TLS handshake"));
  std::lock_guard lock(proof->mutex);
  if (!proof->result) return Failure(proof->result.error());
  return plain;
}

}  // namespace teson::net
