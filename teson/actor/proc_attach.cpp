// How a process becomes part of a mesh.

#include <cerrno>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "teson/actor/handshake_options.h"
#include "teson/actor/proc_state.h"
#include "teson/actor/proc_ticket.h"
#include "teson/base/clock.h"
#include "teson/base/fd.h"
#include "teson/base/host_name.h"
#include "teson/base/world.h"
#include "teson/net/address.h"

namespace teson::actor {

namespace {

/// What the parent passes in the environment: "fd:parent pid:signal at its death:token".
struct Inheritance {
  int fd = -1;
  int parent = 0;
  int death_signal = 0;
  std::string token;
};

Result<Inheritance> read_inheritance(const std::string& text) {
  Inheritance result;
  std::string_view rest = text;
  for (int* number : {&result.fd, &result.parent, &result.death_signal}) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *number);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != ':') {
      return fail(ErrorKind::invalid, fmt::format("{} is damaged: expected fd:parent:signal:token",
                                                  detail::proc_variable));
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
  }
  result.token = rest;
  return result;
}

/// From here on the kernel ends this process when its parent dies; the parent may have died just
/// before.
Result<void> follow_parent(std::int64_t parent, std::int64_t death_signal) {
  if (death_signal != 0 && World::current() == nullptr &&
      ::prctl(PR_SET_PDEATHSIG, death_signal) < 0)
    return fail_errno("prctl", errno);
  if (parent_pid() != parent)
    return fail(ErrorKind::disconnected, fmt::format("the parent, process {}, is gone", parent));
  return {};
}

/// Connected to the process that has started this one, and not a descriptor that came to have its
/// number in between.
bool leads_to_parent(int fd, std::int64_t parent) {
  if (World::current() != nullptr) return true;
  struct ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == parent;
}

/// The socket to the agent that has started this process; none if whatever stands between has
/// closed it.
Fd agent_socket(const detail::ProcTicket& ticket) {
  const auto fd = static_cast<int>(ticket.agent_fd);
  if (fd < 0 || !leads_to_parent(fd, ticket.parent)) return Fd();
  Fd socket(fd);
  return ::fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? Fd() : std::move(socket);
}

std::shared_ptr<net::Channel> agent_channel(net::Loop& loop, Fd socket,
                                            const detail::ProcTicket& ticket) {
  if (!socket) return nullptr;
  net::ChannelOptions options;
  options.handshake = detail::handshake_options(detail::agent_job, ticket.agent_token,
                                                detail::Hello{detail::wire_hash()});
  return net::Channel::adopt(loop, std::move(socket), net::HandshakeRole::initiator,
                             std::move(options));
}

Error other_build() {
  return {ErrorKind::invalid,
          "the owner was built from another version of this library: rebuild both programs"};
}

}  // namespace

bool Proc::is_child() {
  return has_variable(detail::proc_variable);
}

Result<std::unique_ptr<Proc>> Proc::attach(AttachOptions options) {
  const auto text = take_variable(detail::proc_variable);
  if (!text) {
    return fail(ErrorKind::invalid,
                fmt::format("{} is not in the environment: expected to be started by a ProcMesh",
                            detail::proc_variable));
  }
  if (detail::is_ticket(*text)) return attach_by_ticket(*text, options);
  TESON_TRY(const Inheritance inherited, read_inheritance(*text));
  TESON_TRY_VOID(follow_parent(inherited.parent, inherited.death_signal));
  Fd socket(inherited.fd);
  if (::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) < 0)
    return fail_errno("the socket inherited from the parent", errno);

  auto loop = std::make_unique<net::Loop>();
  net::ChannelOptions channel_options;
  channel_options.handshake = detail::handshake_options(detail::child_job, inherited.token,
                                                        detail::Hello{detail::wire_hash()});
  TESON_TRY(std::shared_ptr<net::Channel> channel,
            net::Channel::open(*loop, std::move(socket), net::HandshakeRole::initiator,
                               std::move(channel_options), now() + options.handshake_deadline));
  auto welcome = net::decode<detail::Welcome>(channel->peer_body());
  if (!welcome || welcome->wire != detail::wire_hash()) return fail(other_build());
  return make(*welcome, std::move(loop), {.owner = std::move(channel)}, options);
}

Result<std::unique_ptr<Proc>> Proc::attach_by_ticket(const std::string& text,
                                                     const AttachOptions& options) {
  auto ticket = detail::read_ticket(text);
  if (!ticket) return fail(std::move(ticket).error().in(detail::proc_variable));
  if (ticket->welcome.wire != detail::wire_hash()) return fail(other_build());
  if (ticket->parent != 0) TESON_TRY_VOID(follow_parent(ticket->parent, ticket->death_signal));
  Fd socket = agent_socket(*ticket);
  TESON_TRY(const auto address, net::Address::parse(ticket->address));
  std::shared_ptr<net::Tls> tls;
  if (ticket->encrypted) {
    TESON_TRY(tls, net::Tls::from_environment());
    if (!tls) {
      return fail(ErrorKind::invalid,
                  "the owner wants TLS: expected TESON_TLS_CERT, TESON_TLS_KEY and TESON_TLS_CA in "
                  "the environment of this process");
    }
  }
  const auto dial = [&](const net::Address& where, bool resumes) {
    net::ChannelOptions channel_options;
    channel_options.tls = tls;
    channel_options.resumable = true;
    channel_options.handshake =
        detail::handshake_options(detail::link_job, ticket->secret,
                                  detail::LinkHello{.wire = detail::wire_hash(),
                                                    .role = detail::LinkRole::proc,
                                                    .proc = ticket->welcome.proc,
                                                    .pid = own_pid(),
                                                    .host = host_name(),
                                                    .token = ticket->token,
                                                    .resumes = resumes});
    return net::Dial{where, std::move(channel_options)};
  };
  const Instant until = now() + options.handshake_deadline;
  auto loop = std::make_unique<net::Loop>();
  TESON_TRY(std::shared_ptr<net::Channel> channel,
            net::Channel::connect(*loop, address, dial(address, false).options, until));
  const auto owner = net::decode<detail::OwnerHello>(channel->peer_body());
  if (!owner || owner->wire != detail::wire_hash()) return fail(other_build());
  auto again = dial(channel->endpoint(), true);
  auto agent = agent_channel(*loop, std::move(socket), *ticket);
  auto proc = make(ticket->welcome, std::move(loop),
                   {std::move(channel), std::move(again), std::move(agent)}, options);
  TESON_TRY_VOID(proc->state_->wait_admission(until));
  return proc;
}

std::unique_ptr<Proc> Proc::make(const detail::Welcome& welcome, std::unique_ptr<net::Loop> loop,
                                 Lines lines, const AttachOptions& options) {
  auto state = std::make_shared<State>(welcome.proc, welcome.rank, options);
  ProcContext& context = state->context;
  context.rank = static_cast<std::size_t>(welcome.rank);
  context.shape = Shape(welcome.dimensions);
  context.size = context.shape.ranks();
  context.incarnation = welcome.incarnation;
  context.mesh = welcome.mesh;
  state->orphan_grace = Duration(static_cast<std::int64_t>(welcome.orphan_grace_ns));
  if (lines.owner->peer().family() == net::Address::Family::tcp)
    state->heartbeat = Duration(static_cast<std::int64_t>(welcome.heartbeat_ns));
  state->set_loop(*loop, std::move(lines.again));
  state->own_loop = std::move(loop);
  state->channel = std::move(lines.owner);
  state->agent = std::move(lines.agent);
  return std::unique_ptr<Proc>(new Proc(std::move(state)));
}

std::unique_ptr<Proc> Proc::over(net::Loop& loop, std::unique_ptr<net::Channel> channel,
                                 std::uint64_t self, Duration heartbeat,
                                 std::optional<net::Dial> dial) {
  auto state = std::make_shared<State>(self, 0, AttachOptions{});
  state->context.mesh = "hosts";
  state->ends_when_orphaned = false;
  if (channel->peer().family() == net::Address::Family::tcp) state->heartbeat = heartbeat;
  state->set_loop(loop, std::move(dial));
  state->channel = std::move(channel);
  return std::unique_ptr<Proc>(new Proc(std::move(state)));
}

}  // namespace teson::actor
