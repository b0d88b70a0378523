#pragma once

#include <cstddef>
#include <string_view>

namespace teson::job {

/// Dots of a TOML text that stand neither in a string nor in a comment: a bound on how deep dotted
/// keys can nest tables. The parser and its tables recurse over that depth, so a text with too many
/// is refused before. Exact up to the first syntax error, where the parser stops.
std::size_t count_dots(std::string_view text);

}  // namespace teson::job
