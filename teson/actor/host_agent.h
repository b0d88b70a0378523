#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "teson/actor/actor_ref.h"
#include "teson/actor/endpoints.h"
#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/address.h"
#include "teson/net/tls.h"

namespace teson::actor {

namespace detail {

/// A process that a host agent is to start.
struct HostProc {
  std::uint64_t proc = 0;
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  std::string log_file;
  std::string working_folder;
  std::string ticket;
  std::uint64_t attach_deadline_ns = 0;
  bool parent_death_signal = true;
};

/// How it ended.
struct HostProcEnd {
  std::uint64_t proc = 0;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  bool core_dumped = false;
  bool unknown = false;
  std::vector<std::string> last_lines;
};

class Launcher;

/// In the owner's process: what agents tell.
class HostObserver {
 public:
  virtual ~HostObserver() = default;
  virtual void ended(const HostProcEnd& end) = 0;
  /// What was relayed to this process may not have reached it, and nothing more will.
  virtual void out_of_reach(std::uint64_t proc) = 0;
  using endpoints = Endpoints<&HostObserver::ended, &HostObserver::out_of_reach>;
};

/// In a host agent's.
class HostAgent {
 public:
  virtual ~HostAgent() = default;
  /// The process id. Its end is told to the observer.
  virtual Result<std::int64_t> start(const HostProc& proc) = 0;
  /// Nothing if it has ended.
  virtual void signal(std::uint64_t proc, std::int32_t number) = 0;
  using endpoints = Endpoints<&HostAgent::start, &HostAgent::signal>;
  using arguments = std::tuple<ActorRef<HostObserver>>;
};

}  // namespace detail

/// What a host agent does.
struct HostAgentOptions {
  /// The owner's address, to which it connects, again and again; or, with `listen`, where owners
  /// connect.
  net::Address address;
  bool listen = false;
  /// Of the job, the same as the owner's; may be empty on loopback and Unix sockets only.
  std::string secret;
  /// For connections over TCP: as the owner's, or null as his. Processes that are started here find
  /// theirs in the environment (TlsFiles::from_environment).
  std::shared_ptr<net::Tls> tls;
  Duration connect_interval = std::chrono::seconds(1);
  /// What starts processes. Null: the operating system.
  std::shared_ptr<detail::Launcher> launcher;
  /// What the machine is called. Empty: as it calls itself.
  std::string name;
  /// A line for people: joined, lost, waiting. Any thread; may be empty.
  std::function<void(const std::string& line)> say;
};

/// The agent of a machine: starts processes there for an owner (System), watches them, and ends them when
/// the owner is gone; then waits for the next owner. `teson host` is this function.
class HostServer {
 public:
  /// Returns at once. `invalid`, `failed`: it cannot listen there.
  static Result<std::unique_ptr<HostServer>> start(HostAgentOptions options);
  /// Ends what was started here.
  ~HostServer();
  HostServer(const HostServer&) = delete;
  HostServer& operator=(const HostServer&) = delete;

  /// Where it listens.
  net::Address address() const;

 private:
  struct State;
  explicit HostServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace teson::actor
