#include "teson/actor/admin_request.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace teson::actor::detail {

namespace {

Error unexpected() {
  return {ErrorKind::invalid,
          fmt::format(
              R"(expected one line like {{"what": "ps"}} or {{"what": "trace", "seconds": 5}}, )"
              "with at most {} seconds",
              AdminRequest::seconds_max)};
}

}  // namespace

Result<AdminRequest> parse_admin_request(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return Failure(unexpected());
  const auto what = json.find("what");
  if (what == json.end()) return Failure(unexpected());
  if (*what == "ps" && json.size() == 1) return AdminRequest{};
  const auto seconds = json.find("seconds");
  if (*what != "trace" || json.size() != 2 || seconds == json.end() || !seconds->is_number())
    return Failure(unexpected());
  const double length = seconds->get<double>();
  if (!(length > 0 && length <= AdminRequest::seconds_max)) return Failure(unexpected());
  return AdminRequest{
      .what = AdminRequest::What::trace,
      .length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(length))};
}

std::string admin_error(const Error& error) {
  return nlohmann::json{{"error", error.message}}.dump(-1, ' ', false,
                                                       nlohmann::json::error_handler_t::replace);
}

}  // namespace teson::actor::detail
