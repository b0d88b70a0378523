#include "teson/job/text_width.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace teson::job {
namespace {

struct Range {
  char32_t first, last;
};

constexpr std::array<Range, 14> kZeroWide = {{
    {0x0300, 0x036f},
    {0x0483, 0x0489},
    {0x0591, 0x05bd},
    {0x0610, 0x061a},
    {0x064b, 0x065f},
    {0x093c, 0x093c},
    {0x0e34, 0x0e3a},
    {0x1ab0, 0x1aff},
    {0x1dc0, 0x1dff},
    {0x200b, 0x200f},
    {0x202a, 0x202e},
    {0x20d0, 0x20f0},
    {0xfe00, 0xfe0f},
    {0xfe20, 0xfe2f},
}};
constexpr std::array<Range, 14> kTwoWide = {{
    {0x1100, 0x115f},
    {0x231a, 0x231b},
    {0x2e80, 0x303e},
    {0x3041, 0x33ff},
    {0x3400, 0x4dbf},
    {0x4e00, 0x9fff},
    {0xa000, 0xa4cf},
    {0xac00, 0xd7a3},
    {0xf900, 0xfaff},
    {0xfe30, 0xfe6f},
    {0xff00, 0xff60},
    {0xffe0, 0xffe6},
    {0x1f300, 0x1faff},
    {0x20000, 0x3fffd},
}};

template <std::size_t N>
bool in_any(const std::array<Range, N>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](Range range) { return code >= range.first && code <= range.last; });
}

struct Character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool valid = false;
};

/// The first character of a text that is not empty. Overlong forms, surrogates and cut sequences
/// are not valid.
Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xf0 && lead < 0xf5   ? 4
                            : lead >= 0xe0 && lead < 0xf0 ? 3
                            : lead >= 0xc2 && lead < 0xe0 ? 2
                                                          : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  char32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return {};
    code = (code << 6) | (byte & 0x3fu);
  }
  const char32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {bytes, code, true};
}

std::size_t width_of(const Character& character) {
  if (!character.valid) return 1;
  if (in_any(kZeroWide, character.code)) return 0;
  return in_any(kTwoWide, character.code) ? 2 : 1;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_of(text);
    columns += width_of(character);
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string truncate_to_width(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns == 0) return {};
  std::size_t used = 0, bytes = 0;
  while (bytes < text.size()) {
    const Character character = first_of(text.substr(bytes));
    if (used + width_of(character) > columns - 1) break;
    used += width_of(character);
    bytes += character.bytes;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string pad_right(std::string_view text, std::size_t columns) {
  const std::size_t width = display_width(text);
  return std::string(text) + std::string(columns > width ? columns - width : 0, ' ');
}

std::string pad_left(std::string_view text, std::size_t columns) {
  const std::size_t width = display_width(text);
  return std::string(columns > width ? columns - width : 0, ' ') + std::string(text);
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_of(text);
    const bool control = character.code < 0x20 || (character.code >= 0x7f && character.code < 0xa0);
    if (!character.valid) {
      out += '?';
    } else if (control) {
      out += ' ';
    } else {
      out += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_of(text);
    if (!character.valid) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace teson::job
