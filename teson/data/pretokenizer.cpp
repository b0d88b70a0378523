#include "teson/data/pretokenizer.h"

#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "teson/base/check.h"
#include "teson/data/bpe.h"
#include "teson/data/utf8.h"

namespace teson::data {

const char* const kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::size_t kJitStackBytesMin = 32 << 10;
constexpr std::size_t kJitStackBytesMax = 16 << 20;

}  // namespace

struct Pretokenizer::State {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  bool jit = false;

  State() {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kSplitPattern), PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
    TESON_CHECK(code != nullptr, error, at);
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    match = pcre2_match_data_create_from_pattern(code, nullptr);
    context = pcre2_match_context_create(nullptr);
    TESON_CHECK(match != nullptr && context != nullptr);
    pcre2_set_match_limit(context, UINT32_MAX);
    if (jit) {
      stack = pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr);
      TESON_CHECK(stack != nullptr);
      pcre2_jit_stack_assign(context, nullptr, stack);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }

  /// The end of the piece that begins at `at`, in valid UTF-8.
  std::size_t piece_end(std::string_view valid, std::size_t at) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(valid.data());
    int matched = PCRE2_ERROR_NOMATCH;
    if (jit) matched = pcre2_jit_match(code, subject, valid.size(), at, 0, match, context);
    // The interpreter has no stack to run out of.
    if (matched <= 0)
      matched = pcre2_match(code, subject, valid.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            match, context);
    TESON_CHECK(matched > 0, matched, at, valid.size());
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
    // Some alternative takes every character, so pieces follow one another without a gap.
    TESON_CHECK(span[0] == at && span[1] > at, span[0], span[1], at);
    return span[1];
  }
};

Pretokenizer::Pretokenizer() : state_(std::make_unique<State>()) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::split(std::string_view text, const std::function<void(std::string_view)>& take) {
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    for (std::size_t at = 0; at < valid.size();) {
      const std::size_t end = state_->piece_end(valid, at);
      take(valid.substr(at, end - at));
      at = end;
    }
    text.remove_prefix(valid.size());
    if (text.empty()) return;
    take(text.substr(0, 1));
    text.remove_prefix(1);
  }
}

}  // namespace teson::data
