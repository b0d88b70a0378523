#include "teson/torchft/server.h"

#include <chrono>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include "teson/base/log.h"
#include "teson/torchft/listen_address.h"
#include "teson/torchft/service.h"

namespace teson::torchft {
namespace {

constexpr std::int64_t option_ms_max =
    100'000'000'000;  // three years: far from overflow in nanoseconds
constexpr std::chrono::seconds shutdown_grace{1};

Result<void> check_ms(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value >= least && value <= option_ms_max) return {};
  return fail(ErrorKind::invalid,
              fmt::format("{}: expected {} to {} ms, found {}", name, least, option_ms_max, value));
}

Result<void> check(const Options& options) {
  if (options.min_replicas < 1)
    return fail(ErrorKind::invalid, "min_replicas: expected at least 1, found 0");
  TESON_TRY_VOID(check_ms("join_timeout_ms", options.join_timeout_ms, 0));
  TESON_TRY_VOID(check_ms("quorum_tick_ms", options.quorum_tick_ms, 1));
  TESON_TRY_VOID(check_ms("heartbeat_timeout_ms", options.heartbeat_timeout_ms, 1));
  if (options.quorum_id < 0)
    return fail(ErrorKind::invalid,
                fmt::format("quorum_id: expected at least 0, found {}", options.quorum_id));
  return {};
}

LighthouseService::Settings settings_of(Options& options) {
  return {{options.min_replicas, std::chrono::milliseconds(options.join_timeout_ms),
           std::chrono::milliseconds(options.heartbeat_timeout_ms)},
          std::chrono::milliseconds(options.quorum_tick_ms),
          options.quorum_id,
          std::move(options.on_quorum)};
}

/// torchft's clients ping each minute, idle or not; grpc++ by default takes that for an attack and
/// hangs up. Without SO_REUSEPORT a second lighthouse on the port is refused instead of sharing its
/// members.
void set_transport(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A member whose machine vanished stops waiting here after at most 80 s; long before, its
  // heartbeats stopped counting.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(Options options) : service_(settings_of(options), clock_) {}
  ~Impl() { shutdown(); }

  Result<void> listen(const std::string& bind) {
    TESON_TRY(const auto address, parse_listen_address(bind));
    TESON_TRY_VOID(probe(address));  // gRPC does not say why it cannot listen
    grpc::ServerBuilder builder;
    set_transport(builder);
    builder.AddListeningPort(bind, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ <= 0)
      return fail(
          ErrorKind::failed,
          fmt::format("gRPC could not listen on '{}' though it was free a moment ago", bind));
    address_ = fmt::format("http://{}:{}", advertised_host(address), port_);
    return {};
  }

  void shutdown() {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    service_.close();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + shutdown_grace);
  }

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  const LighthouseService& service() const { return service_; }

 private:
  google::protobuf::LogSilencer
      silencer_;  // protobuf would write a line for each malformed request
  SystemClock clock_;
  LighthouseService service_;  // outlives server_, which calls it
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  int port_ = 0;
  std::mutex mutex_;
  bool closed_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::start(Options options) {
  TESON_TRY_VOID(check(options));
  const auto bind = options.bind;
  auto impl = std::make_unique<Impl>(std::move(options));
  TESON_TRY_VOID(impl->listen(bind));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::string Server::address() const {
  return impl_->address();
}
int Server::port() const {
  return impl_->port();
}

Status Server::status() const {
  Status status;
  impl_->service().inspect([&](const quorum::TorchftLighthouse& lighthouse) {
    const auto& state = lighthouse.state();
    status = {state.quorum_id, state.previous ? state.previous->size() : 0, lighthouse.waiting(),
              state.heartbeats.size(), lighthouse.reason()};
  });
  return status;
}

void Server::shutdown() {
  impl_->shutdown();
}

}  // namespace teson::torchft
