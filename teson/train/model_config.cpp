#include "teson/train/model_config.h"

#include <algorithm>

#include "teson/job/presets.h"

namespace teson::train {

Result<job::ModelShape> model_shape(const job::Config& config, std::uint64_t vocabulary) {
  TESON_TRY(auto shape, job::preset_shape(config.model.preset));
  const auto& model = config.model;
  shape.layers = model.layers.value_or(shape.layers);
  shape.dimension = model.hidden.value_or(shape.dimension);
  shape.heads = model.heads.value_or(shape.heads);
  shape.kv_heads = model.kv_heads.value_or(shape.kv_heads);
  shape.feed_forward = model.feed_forward.value_or(shape.feed_forward);
  shape.norm_epsilon = model.norm_epsilon.value_or(shape.norm_epsilon);
  shape.rope_theta = model.rope_theta.value_or(shape.rope_theta);
  shape.tied_head = model.tied_head.value_or(shape.tied_head);
  shape.vocabulary = static_cast<std::int64_t>(vocabulary);
  shape.context_length = std::max<std::int64_t>(shape.context_length, config.batch.sequence_length);
  TESON_TRY_VOID(job::validate(shape));
  return shape;
}

}  // namespace teson::train
