#pragma once

#include <cstdint>
#include <optional>

#include "teson/base/error.h"

namespace teson::job {

/// How Llama 3.1 stretches the rotary embedding beyond the context it was first trained with:
/// frequencies whose wavelength is longer than original_context / low_freq_factor are divided by
/// `factor`, those shorter than original_context / high_freq_factor stay, and between the two the
/// change is linear in original_context / wavelength.
struct RopeScaling {
  double factor = 8.0;                   ///< greater or equal 1
  double low_freq_factor = 1.0;          ///< above 0
  double high_freq_factor = 4.0;         ///< above low_freq_factor
  std::int64_t original_context = 8192;  ///< tokens

  bool operator==(const RopeScaling&) const = default;
};

/// A model of the Llama 3 architecture as numbers: root-mean-square norms, rotary embedding,
/// grouped-query attention, SwiGLU, no bias anywhere. Names and meaning follow the config.json of
/// Hugging Face's Llama checkpoints.
struct ModelShape {
  std::int64_t vocabulary = 512;  ///< tokens that the embedding knows (vocab_size)
  std::int64_t dimension = 96;    ///< width of the residual stream (hidden_size)
  std::int64_t layers = 2;        ///< blocks (num_hidden_layers)
  std::int64_t heads = 4;         ///< query heads; they divide `dimension` (num_attention_heads)
  std::int64_t kv_heads = 2;  ///< key and value heads; they divide `heads` (num_key_value_heads)
  std::int64_t feed_forward = 256;    ///< inner width of SwiGLU (intermediate_size)
  std::int64_t context_length = 128;  ///< longest sequence, in tokens (max_position_embeddings)
  double rope_theta = 500000.0;       ///< base of the rotary frequencies
  std::optional<RopeScaling> rope_scaling = std::nullopt;
  double norm_epsilon = 1e-5;  ///< added to the mean square (rms_norm_eps)
  bool tied_head = true;       ///< the output projection is the embedding (tie_word_embeddings)

  /// Width of one head; the shape is valid.
  std::int64_t head_size() const { return dimension / heads; }
  bool operator==(const ModelShape&) const = default;
};

/// Refuses (invalid) a shape that cannot be built; the message names the field, its value, and what
/// is allowed. A valid shape has fewer than 2^60 parameters, so parameter_count does not overflow.
Result<void> validate(const ModelShape& shape);

/// Parameters of a valid shape, in closed form. A tied head counts once.
std::int64_t parameter_count(const ModelShape& shape);

}  // namespace teson::job
