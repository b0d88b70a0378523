#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "teson/base/error.h"
#include "teson/model/sampling.h"

namespace teson::model {

class LanguageModel;

struct GenerationOptions {
  SamplingOptions sampling;
  std::int64_t tokens_max = 64;  ///< new tokens
  std::int64_t end_token = -1;   ///< stop after this one; -1: none
  std::uint64_t seed = 0;        ///< the n-th new token is a function of (weights, prompt, seed, n)
};

/// Continues `prompt` (at least one token) and returns the new tokens. `on_token`, if set, sees
/// each as it is drawn; returning false stops. When the text grows beyond the model's context the
/// oldest tokens fall out of it. No cache of keys and values: each token costs one pass over the
/// context. `invalid`: an empty prompt, a token outside the vocabulary, wrong options.
Result<std::vector<std::int64_t>> generate(LanguageModel& model,
                                           std::span<const std::int64_t> prompt,
                                           const GenerationOptions& options,
                                           const std::function<bool(std::int64_t)>& on_token = {});

}  // namespace teson::model
