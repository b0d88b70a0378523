#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "teson/actor/host_link.h"
#include "teson/actor/links.h"
#include "teson/actor/mesh_list.h"
#include "teson/actor/node.h"
#include "teson/actor/relays.h"
#include "teson/actor/serial_thread.h"
#include "teson/actor/system.h"
#include "teson/base/thread.h"
#include "teson/net/loop.h"

namespace teson::actor::detail {

/// What this process says to those who connect over the network.
inline OwnerHello owner_hello(const SystemOptions& options) {
  return {wire_hash(), static_cast<std::uint64_t>(options.host_heartbeat.count())};
}

/// The insides of a System. The order of the members is that of their making; they end in the
/// reverse one.
struct Runtime {
  explicit Runtime(SystemOptions system_options);
  /// Supervision thread: a failure that nobody has dealt with.
  void unhandled(const std::string& chain) const;

  SystemOptions options;
  const std::string host_name;
  const std::shared_ptr<Launcher> launcher;
  const SystemClock clock;
  net::Loop loop{"teson-io"};
  /// Children are started here: the parent-death signal follows this thread, which lives as long as
  /// the System.
  SerialThread starter{"teson-spawn"};
  SerialThread supervision{"teson-superv"};
  Node node;
  Links links{loop, owner_hello(options)};
  Hosts hosts{*this};
  Relays relays{*this};
  std::atomic<std::uint64_t> next_proc{1};  ///< 0 is this process
  std::atomic<int> meshes{0};
  MeshList mesh_list;
  Mutex trace_mutex;  ///< one trace at a time
};

}  // namespace teson::actor::detail
