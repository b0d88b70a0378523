#pragma once

// What procs say to each other over their channel; both ends are of one build (the handshake
// compares wire_hash()).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "teson/actor/inspect.h"
#include "teson/actor/region.h"
#include "teson/actor/shape.h"
#include "teson/actor/trace_id.h"
#include "teson/actor/trace_ring.h"
#include "teson/base/error.h"
#include "teson/net/channel.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

/// Kinds of message.
enum class Kind : std::uint16_t {
  call = 1,          ///< CallHeader, the slice, the arguments
  reply = 2,         ///< ReplyHeader, then the Result
  spawn = 3,         ///< SpawnRequest
  stop = 4,          ///< empty: end when convenient
  actor_failed = 5,  ///< ActorFailed
  undelivered = 6,   ///< Undelivered: a cast that the receiver could not take
  ping = 7,          ///< empty: the owner asks for a sign of life, and gives one
  pong = 8,          ///< empty: the answer
  inspect = 9,       ///< InspectRequest: the owner asks what can be seen; answered by a reply
  stop_actor = 10,   ///< StopActor: the owner ends an actor; answered by a reply when it has ended
  admission = 11,    ///< Result<void>: what the owner says first to a process with a ticket
  proc_ended = 12,   ///< ProcEnded: what the owner tells those that have sent to it
  announced = 13,    ///< Announced: the place of a call among others; it comes by way of the host
  relayed = 14,      ///< that call, as of Kind::call; its epoch is its number
  relay_taken = 15,  ///< RelayTaken: the owner need not keep it for this process any more
  relay_to = 16,     ///< RelayTo: to an agent, who shall have the relayed call that follows
};

inline bool is_reply(const net::Message& message) {
  return message.kind == static_cast<std::uint16_t>(Kind::reply);
}

struct CallHeader {
  std::uint64_t actor = 0;
  std::uint64_t call = 0;  ///< 0: a cast, nobody waits
  std::uint64_t interface = 0;
  std::uint32_t endpoint = 0;
  /// Of the RegionLayout it was sent to, which follows; 0: all that was spawned.
  std::uint32_t slice_bytes = 0;
  MessageTrace trace;
};
/// A call that the owner sends to several processes of one host through its agent, once.
struct Announced {
  std::uint64_t number =
      0;  ///< 1, 2, … in the order of their places; not each goes to every process
  std::uint64_t bytes = 0;  ///< of the call
  CallHeader header;
};
struct RelayTaken {
  std::uint64_t number = 0;
};
struct RelayTo {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> procs;
};
struct ReplyHeader {
  std::uint64_t call = 0;
};
/// Bytes of both on the wire.
inline constexpr std::size_t call_header_bytes = net::detail::smallest<CallHeader>();
inline constexpr std::size_t reply_header_bytes = net::detail::smallest<ReplyHeader>();

struct SpawnRequest {
  std::uint64_t actor = 0;
  std::uint64_t class_hash = 0;
  std::uint64_t interface = 0;
  std::string class_name;
  std::string name;
  RegionLayout region;  ///< the procs that get the actor, and how they are arranged
  std::span<const std::byte> arguments;
};
struct ActorFailed {
  std::uint64_t actor = 0;
  std::string name;
  Error error;
};
struct Undelivered {
  std::uint64_t actor = 0;
  Error error;
};
struct ProcEnded {
  std::uint64_t proc = 0;
  Error error;
};
struct StopActor {
  std::uint64_t actor = 0;
  std::uint64_t call = 0;
};
struct InspectRequest {
  enum class What : std::uint8_t {
    actors,       ///< the reply: a vector of ActorSnapshot
    begin_trace,  ///< the reply: nothing
    end_trace,    ///< the reply: TraceReport
  };
  std::uint64_t call = 0;
  What what = What::actors;
  std::uint64_t events = 0;  ///< to remember
};

/// The parent's part of the handshake.
struct Welcome {
  std::uint64_t wire = 0;
  std::uint64_t proc = 0;
  std::uint64_t rank = 0;
  std::uint64_t incarnation = 0;
  std::vector<Dimension> dimensions;
  std::string mesh;
  std::uint64_t orphan_grace_ns = 0;
  std::uint64_t heartbeat_ns = 0;  ///< between two pings of the owner; 0: none
};
/// The child's.
struct Hello {
  std::uint64_t wire = 0;
};

/// What an owner says to whoever is connected over the network.
struct OwnerHello {
  std::uint64_t wire = 0;
  std::uint64_t host_heartbeat_ns = 0;  ///< between two pings of a host agent; 0: none
  std::string token;                    ///< of this connection, if it is the owner that connects
  bool resumes = false;                 ///< the connection of this token, which was cut
};
/// Who connects over the network.
enum class LinkRole : std::uint8_t {
  proc,  ///< a process that has a ticket
  host,  ///< a host agent
};
struct LinkHello {
  std::uint64_t wire = 0;
  LinkRole role = LinkRole::proc;
  std::uint64_t proc = 0;
  std::int64_t pid = 0;
  std::string host;      ///< name of its machine
  std::string token;     ///< of its ticket; of an agent: of this connection
  bool resumes = false;  ///< the connection of this token, which was cut
};
/// Names of both ends in the handshake of network links.
inline constexpr const char* link_job = "teson";
inline constexpr const char* link_purpose = "actor";

constexpr std::uint64_t wire_hash() {
  return net::schema_hash<
      std::tuple<CallHeader, Announced, RelayTaken, RelayTo, ReplyHeader, SpawnRequest, ActorFailed,
                 Undelivered, ProcEnded, StopActor, InspectRequest, std::vector<ActorSnapshot>,
                 TraceReport, Welcome, Hello, OwnerHello, LinkHello>>();
}

/// Of a call or cast that call_payload has begun.
CallHeader header_of(std::string_view payload);

/// "expected interface Worker 00ab…, found …"
Error interface_mismatch(const std::string& class_name, std::uint64_t expected,
                         std::uint64_t found);

}  // namespace teson::actor::detail
