#pragma once

// What a process needs to join a mesh over the network; not for use outside actor/.

#include <cstdint>
#include <string>
#include <string_view>

#include "teson/actor/wire.h"
#include "teson/base/error.h"

namespace teson::actor::detail {

/// The name of the environment variable by which a process learns whose child it is.
inline constexpr const char* proc_variable = "TESON_PROC";

struct ProcTicket {
  std::string address;     ///< where the owner listens
  bool encrypted = false;  ///< by TLS, if that is over TCP
  std::string secret;      ///< of the handshake
  std::string token;       ///< of this process
  Welcome welcome;
  std::int64_t parent = 0;        ///< its parent process, whose end is its own; 0: not watched
  std::int64_t death_signal = 0;  ///< that the kernel sends when the parent dies
  std::int64_t agent_fd = -1;     ///< its socket to the host agent that is its parent; -1: none
  std::string agent_token;        ///< of the handshake there
};

/// One word of text. It holds secrets.
std::string ticket_text(const ProcTicket& ticket);
bool is_ticket(std::string_view text);
/// `invalid` for any other text, which is not shown.
Result<ProcTicket> read_ticket(std::string_view text);

}  // namespace teson::actor::detail
