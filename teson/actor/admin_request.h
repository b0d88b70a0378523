#pragma once

// What is asked of an admin endpoint, as a line of JSON; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::actor::detail {

struct AdminRequest {
  enum class What : std::uint8_t { ps, trace };
  What what = What::ps;
  Duration length{};  ///< of a trace

  static constexpr double seconds_max = 60;
};

/// A longer line is refused.
inline constexpr std::size_t admin_request_bytes_max = std::size_t{64} << 10;

/// Safe on any input. `invalid` says what was expected.
Result<AdminRequest> parse_admin_request(std::string_view line);
/// What is answered instead: {"error": "…"} without a line end.
std::string admin_error(const Error& error);

}  // namespace teson::actor::detail
