#include "teson/train/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>

namespace teson::train {
namespace {

void update_block(const AdamWStep& step, float weight_decay, float* __restrict weights,
                  const float* __restrict gradients, float* __restrict m, float* __restrict v,
                  std::int64_t count) {
  const float keep = 1.0F - step.learning_rate * weight_decay;
  const float step_size = step.learning_rate / step.bias_correction1;
  const float root_correction = std::sqrt(step.bias_correction2);
  const float take1 = 1.0F - step.beta1, take2 = 1.0F - step.beta2;
  const float beta2 = step.beta2, epsilon = step.epsilon, scale = step.gradient_scale;
  for (std::int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * scale;
    const float first = m[i] + take1 * (gradient - m[i]);
    const float second = beta2 * v[i] + take2 * (gradient * gradient);
    const float denominator = std::sqrt(second) / root_correction + epsilon;
    m[i] = first;
    v[i] = second;
    weights[i] = weights[i] * keep - step_size * (first / denominator);
  }
}

}  // namespace

AdamWStep adamw_step(const job::OptimizerSection& config, double learning_rate, std::int64_t update,
                     float gradient_scale) {
  const auto times = static_cast<double>(update);
  AdamWStep step;
  step.learning_rate = static_cast<float>(learning_rate);
  step.beta1 = static_cast<float>(config.beta1);
  step.beta2 = static_cast<float>(config.beta2);
  step.epsilon = static_cast<float>(config.epsilon);
  step.weight_decay = static_cast<float>(config.weight_decay);
  step.bias_correction1 = static_cast<float>(1.0 - std::pow(config.beta1, times));
  step.bias_correction2 = static_cast<float>(1.0 - std::pow(config.beta2, times));
  step.gradient_scale = gradient_scale;
  return step;
}

void adamw_update(const FlatLayout& layout, const AdamWStep& step, float* weights,
                  const float* gradients, float* m, float* v) {
  adamw_update_range(layout, step, weights, gradients, m, v, 0, layout.elements);
}

void adamw_update_range(const FlatLayout& layout, const AdamWStep& step, float* weights,
                        const float* gradients, float* m, float* v, std::int64_t begin,
                        std::int64_t end) {
  const auto& blocks = layout.blocks;
  const auto first = std::partition_point(
      blocks.begin(), blocks.end(), [&](const FlatBlock& block) { return block.end <= begin; });
  const auto last = std::partition_point(first, blocks.end(),
                                         [&](const FlatBlock& block) { return block.begin < end; });
  at::parallel_for(0, last - first, 1, [&](std::int64_t from, std::int64_t to) {
    for (auto block = first + from; block != first + to; ++block) {
      const std::int64_t start = std::max(begin, block->begin);
      update_block(step, block->decay ? step.weight_decay : 0.0F, weights + start,
                   gradients + start, m + start, v + start, std::min(end, block->end) - start);
    }
  });
}

}  // namespace teson::train
