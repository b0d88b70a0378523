#include "teson/data/json_lines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/data/utf8.h"

namespace teson::data {
namespace {

using Json = nlohmann::json;

std::string names_of(const Json& object) {
  constexpr std::size_t kNamesMax = 8;
  std::string names;
  std::size_t count = 0;
  for (const auto& [name, value] : object.items()) {
    if (++count > kNamesMax) return names + ", …";
    names += (names.empty() ? "'" : ", '") + shorten(name, 40) + "'";
  }
  return names.empty() ? "none" : names;
}

}  // namespace

Result<std::string> text_of_json_line(std::string_view line, const std::string& field) {
  Json value;
  try {
    value = Json::parse(line);
  } catch (const Json::exception& exception) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a JSON object, found: {}", shorten(exception.what())));
  }
  if (!value.is_object()) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a JSON object, found {}", value.type_name()));
  }
  const auto member = value.find(field);
  if (member == value.end()) {
    return fail(ErrorKind::invalid, fmt::format("expected a member '{}', found {}; name the member "
                                                "that holds the text (data.text_field)",
                                                field, names_of(value)));
  }
  if (!member->is_string()) {
    return fail(ErrorKind::invalid, fmt::format("expected member '{}' to be a string, found {}",
                                                field, member->type_name()));
  }
  return std::move(member->get_ref<std::string&>());
}

}  // namespace teson::data
