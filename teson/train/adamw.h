#pragma once

#include <cstdint>

#include "teson/job/config.h"
#include "teson/train/flat_layout.h"

namespace teson::train {

/// The numbers of one AdamW step, all decided before it: nothing is counted inside, so a skipped
/// step is one that was not called.
struct AdamWStep {
  float learning_rate = 0;
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;      ///< applied to blocks with `decay`
  float bias_correction1 = 1;  ///< 1 - beta1^t, t counted from 1 over committed updates
  float bias_correction2 = 1;  ///< 1 - beta2^t
  float gradient_scale = 1;    ///< multiplied into each gradient: (1 / tokens) · clip factor
};

/// The numbers of update `update` (1, 2, …), with the bias corrections taken in double and rounded
/// once.
AdamWStep adamw_step(const job::OptimizerSection& config, double learning_rate, std::int64_t update,
                     float gradient_scale);

/// One pass over flat storage (Loshchilov and Hutter, 2019, algorithm 2, in the order of
/// torch.optim.AdamW). Each element, with g = gradient · scale:
///   m = m + (1 - beta1) · (g - m)
///   v = beta2 · v + (1 - beta2) · g²
///   w = (1 - lr · decay) · w - lr / c1 · m / (sqrt(v) / sqrt(c2) + epsilon)
/// Every operation is rounded in fp32 and elements do not touch each other, so the bits depend on
/// neither threads nor alignment. Gaps are left alone. All four arrays have layout.elements floats
/// and do not overlap.
void adamw_update(const FlatLayout& layout, const AdamWStep& step, float* weights,
                  const float* gradients, float* m, float* v);

/// The same over elements [begin, end) of storage; any cut into ranges gives the same bits.
void adamw_update_range(const FlatLayout& layout, const AdamWStep& step, float* weights,
                        const float* gradients, float* m, float* v, std::int64_t begin,
                        std::int64_t end);

}  // namespace teson::train
