#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace teson::data {

/// Cuts text into pieces along kSplitPattern, with PCRE2 and its JIT where there is one. Every byte
/// is in exactly one piece; a byte that is part of no valid UTF-8 character is a piece of its own.
/// Movable; one thread at a time.
class Pretokenizer {
 public:
  Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();
  void split(std::string_view text, const std::function<void(std::string_view piece)>& take);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace teson::data
