#pragma once

// What a Node does with requests of other processes; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "teson/base/log.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

/// A request of type T that `from` has sent. A damaged one goes to the log, which calls it `what`.
template <typename T>
std::optional<T> read_request(std::uint64_t from, std::span<const std::byte> bytes,
                              std::string_view what) {
  auto request = net::decode<T>(bytes);
  if (request) return std::move(*request);
  log_warning("actor", "proc {} sent a damaged {}: {}", from, what, request.error().describe());
  return std::nullopt;
}

}  // namespace teson::actor::detail
