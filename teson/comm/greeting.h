#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "teson/base/error.h"

namespace teson::comm {

/// The body of a communicator connection's handshake: who wants to join whom in which epoch. The
/// acceptor, which does not know yet, gives its instance only.
struct Greeting {
  std::uint64_t epoch = 0;
  std::uint64_t instance = 0;
  std::uint32_t from = 0;  ///< rank of the sender
  std::uint32_t to = 0;    ///< rank it takes the receiver for
  std::uint32_t size = 0;  ///< of the group

  bool operator==(const Greeting&) const = default;
};

inline constexpr std::uint32_t group_size_max = 4096;

std::vector<std::byte> encode_greeting(const Greeting& greeting);
/// `invalid`: another length than 32 bytes.
Result<Greeting> decode_greeting(std::span<const std::byte> bytes);

}  // namespace teson::comm
