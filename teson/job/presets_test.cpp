#include "teson/job/presets.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace teson::job {
namespace {

std::string refusal(const ModelShape& shape) {
  auto result = validate(shape);
  if (result) return "accepted";
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  return result.error().message;
}

// Counts as Meta and Hugging Face publish them (numel of all tensors of the checkpoints).
TEST(Presets, parameter_counts_equal_the_published_ones) {
  EXPECT_EQ(parameter_count(preset_shape("llama3-8b").value()), 8'030'261'248);
  EXPECT_EQ(parameter_count(preset_shape("llama3-70b").value()), 70'553'706'496);
  EXPECT_EQ(parameter_count(preset_shape("llama3.1-405b").value()), 405'853'388'800);
  EXPECT_EQ(parameter_count(preset_shape("llama3.2-1b").value()), 1'235'814'400);
  EXPECT_EQ(parameter_count(preset_shape("llama3.2-3b").value()), 3'212'749'824);
}

TEST(Presets, all_are_valid_and_ordered_by_size) {
  std::int64_t last = 0;
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(validate(preset.shape).has_value()) << preset.name;
    EXPECT_GT(parameter_count(preset.shape), last) << preset.name;
    last = parameter_count(preset.shape);
  }
}

TEST(Presets, an_unknown_name_is_refused_with_the_known_ones) {
  auto result = preset_shape("llama4");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  EXPECT_NE(result.error().message.find("'llama4'"), std::string::npos);
  EXPECT_NE(result.error().message.find("small-3m"), std::string::npos);
}

TEST(ModelShape, what_cannot_be_built_is_refused_by_name) {
  const auto with = [](auto change) {
    ModelShape shape;
    change(shape);
    return refusal(shape);
  };
  EXPECT_EQ(refusal(ModelShape{}), "accepted");
  EXPECT_EQ(with([](ModelShape& s) { s.heads = 5; }),
            "model.heads is 5; expected a divisor of model.hidden, 96");
  EXPECT_EQ(with([](ModelShape& s) { s.kv_heads = 3; }),
            "model.kv_heads is 3; expected a divisor of model.heads, 4");
  EXPECT_EQ(with([](ModelShape& s) { s.heads = s.kv_heads = 32; }),
            "model.hidden / model.heads is 3; expected an even number: the rotary embedding turns "
            "pairs");
  EXPECT_EQ(with([](ModelShape& s) { s.layers = 0; }), "model.layers is 0; expected 1 to 4096");
  EXPECT_EQ(with([](ModelShape& s) { s.vocabulary = -1; }),
            "data.vocabulary is -1; expected 1 to 16777216");
  EXPECT_EQ(with([](ModelShape& s) { s.kv_heads = 8; }), "model.kv_heads is 8; expected 1 to 4");
  EXPECT_EQ(with([](ModelShape& s) { s.norm_epsilon = 0; }),
            "model.norm_epsilon is 0; expected a number between 0 and 1");
  EXPECT_NE(with([](ModelShape& s) { s.rope_theta = std::numeric_limits<double>::quiet_NaN(); }),
            "accepted");
  EXPECT_NE(with([](ModelShape& s) { s.rope_scaling = RopeScaling{0.5, 1, 4, 8192}; }), "accepted");
  EXPECT_EQ(with([](ModelShape& s) { s.rope_scaling = RopeScaling{8, 4, 4, 8192}; }),
            "rope_scaling.high_freq_factor is 4; expected more than low_freq_factor, 4");
  EXPECT_NE(with([](ModelShape& s) { s.dimension = std::numeric_limits<std::int64_t>::max(); }),
            "accepted");
}

TEST(ModelShape, the_largest_valid_count_does_not_overflow) {
  ModelShape shape;
  shape.vocabulary = std::int64_t{1} << 24;
  shape.dimension = shape.feed_forward = std::int64_t{1} << 20;
  shape.heads = shape.kv_heads = 1;
  shape.layers = 4096;
  shape.tied_head = false;
  ASSERT_EQ(refusal(shape), "accepted");
  const double expected = 2.0 * 0x1p44 + 4096.0 * (4 * 0x1p40 + 3 * 0x1p40 + 0x1p21) + 0x1p20;
  EXPECT_EQ(static_cast<double>(parameter_count(shape)), expected);
}

}  // namespace
}  // namespace teson::job
