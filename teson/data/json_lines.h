#pragma once

#include <string>
#include <string_view>

#include "teson/base/error.h"

namespace teson::data {

/// The text of one JSON line: the string member `field` of the object. `invalid` otherwise, with
/// the reason alone: the caller knows file and line.
Result<std::string> text_of_json_line(std::string_view line, const std::string& field);

}  // namespace teson::data
