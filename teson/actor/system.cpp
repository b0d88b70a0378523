#include "teson/actor/system.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/actor/mesh_state.h"
#include "teson/actor/runtime.h"
#include "teson/base/check.h"
#include "teson/base/log.h"

namespace teson::actor {

namespace detail {

namespace {

std::string this_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

Runtime::Runtime(SystemOptions system_options)
    : options(std::move(system_options)),
      host_name(this_host_name()),
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
            .stop_asked = {}}) {}

void Runtime::unhandled(const std::string& chain) const {
  if (options.on_unhandled) return options.on_unhandled(chain);
  log_error("actor", "nobody has dealt with this failure, so this process ends: {}", chain);
  // At once: what could still be done belongs to on_unhandled. The children end with it.
  ::_exit(unhandled_exit_code);
}

}  // namespace detail

System::System(SystemOptions options)
    : runtime_(std::make_unique<detail::Runtime>(std::move(options))) {}

System::~System() {
  TESON_CHECK(runtime_->meshes.load() == 0 && "a ProcMesh must go before its System");
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

Host this_host(System& system) {
  return Host(system);
}

Result<ProcMesh> Host::spawn_procs(const Shape& shape, ProcOptions options) {
  TESON_TRY_VOID(shape.validate());
  auto state = std::make_shared<detail::MeshState>(*system_->runtime_, shape, std::move(options));
  // From here on the mesh ends what was started.
  ProcMesh mesh(state);
  TESON_TRY_VOID(state->start_all());
  return mesh;
}

}  // namespace teson::actor
