#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace teson::job {

/// Columns a UTF-8 text takes on a terminal: combining marks 0, East Asian wide characters and
/// emoji 2, everything else 1 (ranges of Unicode Standard Annex 11). Each byte that is no UTF-8
/// counts as one column.
std::size_t display_width(std::string_view text);

/// The longest beginning that fits `columns`, never a part of a character; ends in "…" if something
/// was cut (columns >= 1).
std::string truncate_to_width(std::string_view text, std::size_t columns);

/// Padded with spaces to `columns`, on the right or on the left. Never cut.
std::string pad_right(std::string_view text, std::size_t columns);
std::string pad_left(std::string_view text, std::size_t columns);

/// On one line and harmless for a terminal: control characters (line ends, escapes) become spaces,
/// bad UTF-8 becomes "?".
std::string printable(std::string_view text);

/// Whether all of it is UTF-8, without overlong forms and surrogates.
bool is_utf8(std::string_view text);

}  // namespace teson::job
