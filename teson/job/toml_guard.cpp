#include "teson/job/toml_guard.h"

namespace teson::job {
namespace {

/// The length of the string literal that `text` begins with, its quotes included.
std::size_t string_length(std::string_view text) {
  const char quote = text[0];
  const bool triple = text.size() >= 3 && text[1] == quote && text[2] == quote;
  const std::size_t marks = triple ? 3 : 1;
  std::size_t at = marks;
  while (at < text.size()) {
    if (text[at] == '\\' && quote == '"') {
      at += 2;
      continue;
    }
    if (text[at] == '\n' && !triple) return at;
    const bool ends = text[at] == quote && (!triple || text.substr(at, 3) == text.substr(0, 3));
    if (!ends) {
      ++at;
      continue;
    }
    at += marks;
    // A multi-line string may end in up to two quotes of its own.
    for (int extra = 0; triple && extra < 2 && at < text.size() && text[at] == quote; ++extra)
      ++at;
    return at;
  }
  return text.size();
}

}  // namespace

std::size_t count_dots(std::string_view text) {
  std::size_t dots = 0;
  while (!text.empty()) {
    std::size_t taken = 1;
    if (text[0] == '"' || text[0] == '\'') {
      taken = string_length(text);
    } else if (text[0] == '#') {
      taken = text.find('\n');
    } else if (text[0] == '.') {
      ++dots;
    }
    text.remove_prefix(taken < text.size() ? taken : text.size());
  }
  return dots;
}

}  // namespace teson::job
