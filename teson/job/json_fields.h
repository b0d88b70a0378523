#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/base/error.h"

namespace teson::job {

/// Reads fields of a JSON object by name and kind, remembering the first thing that is wrong. Only
/// for sources of this folder.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json& object) : object_(object) {
    if (!object.is_object()) wrong_ = "expected a JSON object";
  }

  /// NaN for null, which is how numbers that are not finite are written.
  double real(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return missing(name, "a number");
    if (value->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value->is_number()) return missing(name, "a number");
    return value->get<double>();
  }
  std::optional<double> optional_real(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    return real(name);
  }

  template <typename Integer>
  Integer whole(const char* name, Integer low = 0) {
    const nlohmann::json* value = find(name);
    if (value == nullptr || !value->is_number_integer())
      return static_cast<Integer>(missing(name, "a whole number"));
    constexpr auto high = std::numeric_limits<Integer>::max();
    const bool large = value->is_number_unsigned() &&
                       value->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
    const bool small = !value->is_number_unsigned() &&
                       (low == 0 || value->get<std::int64_t>() < static_cast<std::int64_t>(low));
    if (large || small) return static_cast<Integer>(missing(name, "a number within its limits"));
    return value->get<Integer>();
  }
  template <typename Integer>
  std::optional<Integer> optional_whole(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    return whole<Integer>(name);
  }

  bool flag(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return missing(name, "true or false") != 0;
    return value->get<bool>();
  }
  std::string text(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) {
      missing(name, "a text");
      return {};
    }
    return value->get<std::string>();
  }
  /// The array of that name, or an empty one.
  const nlohmann::json& list(const char* name) {
    static const nlohmann::json empty = nlohmann::json::array();
    const nlohmann::json* value = find(name);
    if (value != nullptr && value->is_array()) return *value;
    missing(name, "a list");
    return empty;
  }

  /// None if there is no array of that name.
  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> texts;
    if (find(name) == nullptr) return texts;
    for (const nlohmann::json& each : list(name)) {
      if (each.is_string()) {
        texts.push_back(each.get<std::string>());
      } else {
        missing(name, "a list of texts");
      }
    }
    return texts;
  }

  void wrong(std::string text) {
    if (wrong_.empty()) wrong_ = std::move(text);
  }
  bool good() const { return wrong_.empty(); }
  Failure failure() const { return fail(ErrorKind::invalid, wrong_); }

 private:
  const nlohmann::json* find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  int missing(const char* name, const char* expected) {
    wrong(fmt::format("field \"{}\": expected {}", name, expected));
    return 0;
  }

  const nlohmann::json& object_;
  std::string wrong_;
};

/// A number that JSON can hold: null if it is not finite.
inline nlohmann::json finite_or_null(double number) {
  return std::isfinite(number) ? nlohmann::json(number) : nlohmann::json();
}

inline std::string dump_line(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

inline Result<nlohmann::json> parse_json(std::string_view text) {
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  if (parsed.is_discarded()) return fail(ErrorKind::invalid, "expected a JSON text");
  return parsed;
}

}  // namespace teson::job
