#pragma once

// How procs, their owners and host agents introduce themselves; not for use outside actor/.

#include <span>
#include <string>
#include <utility>

#include "teson/actor/wire.h"
#include "teson/net/codec.h"
#include "teson/net/handshake.h"

namespace teson::actor::detail {

/// Between a child and its parent.
inline constexpr const char* child_job = "proc";
/// Between a process and the host agent that has started it; link_job is what both have with the owner.
inline constexpr const char* agent_job = "agent";

/// `hello`: what the other end shall learn.
template <typename T>
net::HandshakeOptions handshake_options(std::string job_id, std::string secret, const T& hello) {
  const std::string body = net::encode(hello);
  const auto bytes = std::as_bytes(std::span(body));
  return {.job_id = std::move(job_id),
          .purpose = link_purpose,
          .secret = std::move(secret),
          .body = {bytes.begin(), bytes.end()}};
}

}  // namespace teson::actor::detail
