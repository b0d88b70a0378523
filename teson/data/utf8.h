#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace teson::data {

/// How many bytes of `text` from its start are whole, valid UTF-8 characters (RFC 3629: no
/// surrogates, no overlong forms).
std::size_t valid_utf8_prefix(std::string_view text);

/// Whether `tail` (what follows a valid prefix) may become a character once more bytes come.
bool is_incomplete_utf8(std::string_view tail);

/// The largest boundary between two characters that is <= `at`, in valid UTF-8.
std::size_t character_boundary(std::string_view text, std::size_t at);

/// "\r\n" and "\r" become "\n".
void normalise_line_ends(std::string& text);

/// For messages: at most `bytes_max` bytes of a text that may be as long as the input, then "…".
std::string shorten(std::string_view text, std::size_t bytes_max = 200);

/// Without ASCII white space at either end.
std::string_view strip(std::string_view text);

}  // namespace teson::data
