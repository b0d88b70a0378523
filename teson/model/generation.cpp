#include "teson/model/generation.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "teson/base/random.h"
#include "teson/model/language_model.h"

namespace teson::model {
namespace {

Result<void> check(const LanguageModel& model, std::span<const std::int64_t> prompt,
                   const GenerationOptions& options) {
  TESON_TRY_VOID(validate(options.sampling));
  if (options.tokens_max < 0)
    return fail(ErrorKind::invalid,
                fmt::format("tokens to generate are {}; expected 0 or more", options.tokens_max));
  if (prompt.empty())
    return fail(ErrorKind::invalid, "the prompt is empty; expected at least one token");
  for (std::int64_t token : prompt) {
    if (token < 0 || token >= model.shape().vocabulary)
      return fail(ErrorKind::invalid,
                  fmt::format("the prompt has token {}, but the model's vocabulary ends at {}: "
                              "tokenizer and checkpoint do not belong together",
                              token, model.shape().vocabulary - 1));
  }
  return {};
}

}  // namespace

Result<std::vector<std::int64_t>> generate(LanguageModel& model,
                                           std::span<const std::int64_t> prompt,
                                           const GenerationOptions& options,
                                           const std::function<bool(std::int64_t)>& on_token) {
  TESON_TRY_VOID(check(model, prompt, options));
  at::NoGradGuard no_grad;
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  CounterRandom random({options.seed, 0x67656e6572617465ULL});
  const c10::Device device = model.parameters().front().tensor.device();
  for (std::int64_t count = 0; count < options.tokens_max; ++count) {
    const auto length =
        std::min(static_cast<std::int64_t>(text.size()), model.shape().context_length);
    std::int64_t token = 0;
    try {
      const at::Tensor window = at::from_blob(
          text.data() + (static_cast<std::int64_t>(text.size()) - length), {1, length}, at::kLong);
      const at::Tensor logits =
          model.last_logits(window.to(device)).to(at::kCPU, at::kFloat).contiguous();
      TESON_TRY(token, sample_token({logits.const_data_ptr<float>(),
                                     static_cast<std::size_t>(logits.numel())},
                                    options.sampling, random.uniform()));
    } catch (const std::exception& error) {
      return fail(ErrorKind::failed, fmt::format("generating token {}: {}", count, error.what()));
    }
    text.push_back(token);
    if (token == options.end_token || (on_token && !on_token(token))) break;
  }
  return std::vector<std::int64_t>(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                   text.end());
}

}  // namespace teson::model
