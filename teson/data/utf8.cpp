#include "teson/data/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace teson::data {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;

/// What a lead byte asks for: the length, and the limits of the second byte (RFC 3629, section 4).
struct Lead {
  std::size_t length;
  unsigned char second_min, second_max;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Bytes of the character at `at` that are there and fit.
std::size_t matching(std::string_view text, std::size_t at, Lead lead) {
  std::size_t count = 1;
  while (count < lead.length && at + count < text.size()) {
    const unsigned char byte = byte_at(text, at + count);
    const unsigned char low = count == 1 ? lead.second_min : 0x80;
    const unsigned char high = count == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) break;
    ++count;
  }
  return count;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    while (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & kHighBits) != 0) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const Lead lead = lead_of(byte_at(text, at));
    if (lead.length == 0 || matching(text, at, lead) != lead.length) return at;
    at += lead.length;
  }
  return at;
}

bool is_incomplete_utf8(std::string_view tail) {
  if (tail.empty()) return false;
  const Lead lead = lead_of(byte_at(tail, 0));
  return lead.length > tail.size() && matching(tail, 0, lead) == tail.size();
}

std::size_t character_boundary(std::string_view text, std::size_t at) {
  if (at >= text.size()) return text.size();
  while (at > 0 && (byte_at(text, at) & 0xC0) == 0x80)
    --at;
  return at;
}

void normalise_line_ends(std::string& text) {
  if (text.find('\r') == std::string::npos) return;
  std::size_t to = 0;
  for (std::size_t from = 0; from < text.size(); ++from) {
    if (text[from] == '\r') {
      if (from + 1 < text.size() && text[from + 1] == '\n') continue;
      text[to++] = '\n';
    } else {
      text[to++] = text[from];
    }
  }
  text.resize(to);
}

std::string shorten(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  return std::string(text.substr(0, character_boundary(text, bytes_max))) + "…";
}

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace teson::data
