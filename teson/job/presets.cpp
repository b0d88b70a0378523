#include "teson/job/presets.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace teson::job {
namespace {

constexpr std::int64_t kVocabularyMax = std::int64_t{1} << 24;
constexpr std::int64_t kWidthMax = std::int64_t{1} << 20;
constexpr std::int64_t kLayersMax = 4096;
constexpr std::int64_t kContextMax = std::int64_t{1} << 24;

constexpr ModelShape llama(std::int64_t dimension, std::int64_t layers, std::int64_t heads,
                           std::int64_t feed_forward) {
  ModelShape shape;
  shape.vocabulary = 128256;
  shape.dimension = dimension;
  shape.layers = layers;
  shape.heads = heads;
  shape.kv_heads = 8;
  shape.feed_forward = feed_forward;
  shape.context_length = 8192;
  shape.tied_head = false;
  return shape;
}

constexpr ModelShape stretched(ModelShape shape, double factor) {
  shape.context_length = 131072;
  shape.rope_scaling = RopeScaling{factor, 1.0, 4.0, 8192};
  return shape;
}

constexpr ModelShape tied(ModelShape shape) {
  shape.tied_head = true;
  return shape;
}

constexpr ModelShape small_3m() {
  ModelShape shape;
  shape.vocabulary = 4096;
  shape.dimension = 256;
  shape.layers = 4;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.feed_forward = 512;
  shape.context_length = 1024;
  shape.rope_theta = 10000.0;
  return shape;
}

constexpr std::array<Preset, 7> kPresets = {{
    {"tiny", "a quarter of a million parameters, for tests", ModelShape{}},
    {"small-3m", "3.4 million parameters, for two CPU cores", small_3m()},
    {"llama3.2-1b", "Llama 3.2 1B", tied(stretched(llama(2048, 16, 32, 8192), 32.0))},
    {"llama3.2-3b", "Llama 3.2 3B", tied(stretched(llama(3072, 28, 24, 8192), 32.0))},
    {"llama3-8b", "Llama 3 8B", llama(4096, 32, 32, 14336)},
    {"llama3-70b", "Llama 3 70B", llama(8192, 80, 64, 28672)},
    {"llama3.1-405b", "Llama 3.1 405B", stretched(llama(16384, 126, 128, 53248), 8.0)},
}};

Failure wrong(std::string_view field, const auto& value, std::string_view expected) {
  return fail(ErrorKind::invalid, fmt::format("{} is {}; expected {}", field, value, expected));
}

Result<void> in_range(std::string_view field, std::int64_t value, std::int64_t max) {
  if (value < 1 || value > max) return wrong(field, value, fmt::format("1 to {}", max));
  return {};
}

Result<void> validate(const RopeScaling& scaling) {
  if (!std::isfinite(scaling.factor) || scaling.factor < 1)
    return wrong("rope_scaling.factor", scaling.factor, "a finite number of at least 1");
  if (!std::isfinite(scaling.low_freq_factor) || scaling.low_freq_factor <= 0)
    return wrong("rope_scaling.low_freq_factor", scaling.low_freq_factor,
                 "a finite number above 0");
  if (!std::isfinite(scaling.high_freq_factor) ||
      scaling.high_freq_factor <= scaling.low_freq_factor)
    return wrong("rope_scaling.high_freq_factor", scaling.high_freq_factor,
                 fmt::format("more than low_freq_factor, {}", scaling.low_freq_factor));
  return in_range("rope_scaling.original_context", scaling.original_context, kContextMax);
}

}  // namespace

Result<void> validate(const ModelShape& shape) {
  TESON_TRY_VOID(in_range("data.vocabulary", shape.vocabulary, kVocabularyMax));
  TESON_TRY_VOID(in_range("model.hidden", shape.dimension, kWidthMax));
  TESON_TRY_VOID(in_range("model.layers", shape.layers, kLayersMax));
  TESON_TRY_VOID(in_range("model.heads", shape.heads, shape.dimension));
  TESON_TRY_VOID(in_range("model.kv_heads", shape.kv_heads, shape.heads));
  TESON_TRY_VOID(in_range("model.feed_forward", shape.feed_forward, kWidthMax));
  TESON_TRY_VOID(in_range("batch.sequence_length", shape.context_length, kContextMax));
  if (shape.dimension % shape.heads != 0)
    return wrong("model.heads", shape.heads,
                 fmt::format("a divisor of model.hidden, {}", shape.dimension));
  if (shape.heads % shape.kv_heads != 0)
    return wrong("model.kv_heads", shape.kv_heads,
                 fmt::format("a divisor of model.heads, {}", shape.heads));
  if (shape.head_size() % 2 != 0)
    return wrong("model.hidden / model.heads", shape.head_size(),
                 "an even number: the rotary embedding turns pairs");
  if (!std::isfinite(shape.rope_theta) || shape.rope_theta <= 1)
    return wrong("model.rope_theta", shape.rope_theta, "a finite number above 1");
  if (!std::isfinite(shape.norm_epsilon) || shape.norm_epsilon <= 0 || shape.norm_epsilon >= 1)
    return wrong("model.norm_epsilon", shape.norm_epsilon, "a number between 0 and 1");
  if (shape.rope_scaling) return validate(*shape.rope_scaling);
  return {};
}

std::int64_t parameter_count(const ModelShape& shape) {
  const std::int64_t kv_width = shape.kv_heads * shape.head_size();
  const std::int64_t attention = 2 * shape.dimension * (shape.dimension + kv_width);
  const std::int64_t feed_forward = 3 * shape.dimension * shape.feed_forward;
  const std::int64_t norms = 2 * shape.dimension;
  const std::int64_t tables = shape.vocabulary * shape.dimension * (shape.tied_head ? 1 : 2);
  return tables + shape.layers * (attention + feed_forward + norms) + shape.dimension;
}

std::span<const Preset> presets() {
  return kPresets;
}

Result<ModelShape> preset_shape(std::string_view name) {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.shape;
    names += names.empty() ? "" : ", ";
    names += preset.name;
  }
  return fail(ErrorKind::invalid,
              fmt::format("there is no model preset '{}'; expected one of {}", name, names));
}

}  // namespace teson::job
