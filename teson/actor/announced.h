#pragma once

// Calls that come to a process by way of its host's agent; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "teson/actor/wire.h"
#include "teson/base/error.h"
#include "teson/net/payload.h"

namespace teson::actor::detail {

/// The calls whose places the owner has announced over its own connection, and which come over
/// another, before or after; or again over the owner's, should the agent fail: once each. One thread.
class AnnouncedCalls {
 public:
  /// Calls that may have come before their announcement. An owner has fewer on their way.
  static constexpr std::size_t early_max = 256;

  /// `invalid`: its number is not above all others. The call, if it is here already.
  Result<std::optional<net::Buffer>> announce(const Announced& call);
  /// Nobody waits for it: it has no place.
  void withdraw(std::uint64_t number) { awaited_.erase(number); }
  /// What was announced, of a call that has come: nothing if it is not yet, and the call is kept; or
  /// if it has come before, or was withdrawn, and the call is dropped.
  std::optional<Announced> arrive(std::uint64_t number, net::Buffer& call);

 private:
  std::uint64_t last_ = 0;  ///< the highest number announced
  std::map<std::uint64_t, Announced> awaited_;
  std::map<std::uint64_t, net::Buffer> early_;
};

}  // namespace teson::actor::detail
