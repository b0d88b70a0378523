#include "teson/actor/system.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/actor/admin.h"
#include "teson/actor/inspect_json.h"
#include "teson/actor/mesh_state.h"
#include "teson/actor/runtime.h"
#include "teson/actor/trace.h"
#include "teson/base/check.h"
#include "teson/base/host_name.h"
#include "teson/base/log.h"
#include "teson/base/world.h"

namespace teson::actor {

namespace detail {

Runtime::Runtime(SystemOptions system_options)
    : options(std::move(system_options)),
      host_name(teson::host_name()),
      launcher(options.launcher ? options.launcher : system_launcher()),
      node(0, 0, 1, options.mailbox,
           {.actor_failed =
                [this](const ActorFailure& failure) {
                  supervision.post([this, failure] {
                    if (options.on_actor_failure) return options.on_actor_failure(failure);
                    unhandled(fmt::format("actor '{}' of {} has ended: {}", failure.name,
                                          failure.where, failure.error.describe()));
                  });
                },
            .undelivered =
                [this](const UndeliveredCast& lost) {
                  supervision.post([this, lost] {
                    if (options.on_undelivered) return options.on_undelivered(lost);
                    log_undelivered(lost);
                  });
                },
            .stop_asked = {},
            .relay_taken = [this](std::uint64_t proc,
                                  std::uint64_t number) { relays.taken(proc, number); }}) {}

void Runtime::unhandled(const std::string& chain) const {
  if (options.on_unhandled) return options.on_unhandled(chain);
  log_error("actor", "nobody has dealt with this failure, so this process ends: {}", chain);
  // At once: what could still be done belongs to on_unhandled. The children end with it.
  exit_at_once(unhandled_exit_code);
}

}  // namespace detail

System::System(SystemOptions options)
    : runtime_(std::make_unique<detail::Runtime>(std::move(options))) {}

System::~System() {
  admin_.reset();
  TESON_CHECK(runtime_->meshes.load() == 0 && "a ProcMesh must go before its System");
  runtime_->links.close();
  runtime_->hosts.close();
  runtime_->relays.stop();
  runtime_->node.close();
  runtime_->supervision.stop();
  runtime_->loop.stop();
}

net::Loop& System::loop() {
  return runtime_->loop;
}
detail::Node& System::node() {
  return runtime_->node;
}
Duration System::call_deadline() const {
  return runtime_->options.call_deadline;
}

Result<std::string> System::trace(Duration length) {
  TESON_TRY(const auto procs, detail::take_trace(*runtime_, length, -1));
  return detail::chrome_trace(procs);
}

Result<void> System::serve_admin(const net::Address& address) {
  admin_.reset();
  const auto answer = [this](const detail::AdminRequest& request,
                             int cancel_fd) -> Result<std::string> {
    if (request.what == detail::AdminRequest::What::ps) return to_json(inspect());
    TESON_TRY(const auto procs, detail::take_trace(*runtime_, request.length, cancel_fd));
    return detail::chrome_trace(procs);
  };
  TESON_TRY(admin_, detail::AdminServer::listen(address, answer));
  return {};
}

Host this_host(System& system) {
  return {system, nullptr};
}

Result<net::Address> System::listen(const ListenOptions& options) {
  return runtime_->links.listen(
      options,
      [runtime = runtime_.get()](std::unique_ptr<net::Channel> channel, detail::LinkHello hello) {
        runtime->hosts.add(std::move(channel), std::move(hello));
      });
}

Result<HostMesh> System::wait_hosts(std::size_t count, Instant deadline) {
  TESON_TRY(auto links, runtime_->hosts.wait(count, deadline));
  links.resize(count);
  const Shape shape{{"host", count}};
  TESON_TRY_VOID(shape.validate());
  return HostMesh(*this, std::move(links), Region(shape));
}

Result<void> System::connect_host(const net::Address& address, const std::string& secret,
                                  Instant deadline, std::shared_ptr<net::Tls> tls) {
  return runtime_->hosts.connect(address, secret, deadline, std::move(tls));
}

Result<ProcMesh> System::expect_procs(const Shape& shape, ProcOptions options) {
  return detail::MeshState::make(*runtime_, shape, std::move(options), {.guests = true});
}

std::string Host::name() const {
  return link_ ? link_->name() : system_->runtime_->host_name;
}

Result<ProcMesh> Host::spawn_procs(const Shape& shape, ProcOptions options) {
  detail::Placement placement;
  if (link_) placement.hosts.push_back(link_);
  return detail::MeshState::make(*system_->runtime_, shape, std::move(options),
                                 std::move(placement));
}

Host HostMesh::host(std::size_t rank) const {
  return {*system_, hosts_.at(region_.rank_at(rank))};
}

Result<ProcMesh> HostMesh::spawn_procs(const Shape& per_host, ProcOptions options) const {
  TESON_TRY_VOID(per_host.validate());
  Shape shape = region_.shape();
  shape.dimensions.insert(shape.dimensions.end(), per_host.dimensions.begin(),
                          per_host.dimensions.end());
  detail::Placement placement;
  for (std::size_t rank = 0; rank < region_.ranks(); ++rank)
    placement.hosts.push_back(hosts_.at(region_.rank_at(rank)));
  return detail::MeshState::make(*system_->runtime_, shape, std::move(options),
                                 std::move(placement));
}

}  // namespace teson::actor
