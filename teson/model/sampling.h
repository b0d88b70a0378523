#pragma once

#include <cstdint>
#include <span>

#include "teson/base/error.h"

namespace teson::model {

/// How the next token is drawn. Applied in this order: temperature, top-k, top-p.
struct SamplingOptions {
  double temperature = 1.0;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;    ///< only the k likeliest tokens; 0: all
  double top_p = 1.0;        ///< only the likeliest tokens that together reach this probability
                             ///< (nucleus); above 0 to 1
};

Result<void> validate(const SamplingOptions& options);

/// Draws a token from unnormalized log-probabilities. A pure function: `uniform` in [0, 1) is the
/// only randomness, and tokens are laid along it from the likeliest down (equal ones by number).
/// `failed`: a logit is NaN or all are -infinity.
Result<std::int64_t> sample_token(std::span<const float> logits, const SamplingOptions& options,
                                  double uniform);

}  // namespace teson::model
