#include "teson/model/language_model.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "teson/job/presets.h"
#include "teson/model/generation.h"

namespace teson::model {
namespace {

std::unique_ptr<LanguageModel> tiny(std::uint64_t seed = 1, at::ScalarType dtype = at::kFloat,
                                    job::ModelShape shape = {}) {
  at::set_num_threads(1);
  auto model = LanguageModel::create(shape, {.dtype = dtype, .seed = seed});
  EXPECT_TRUE(model) << model.error().describe();
  return std::move(*model);
}

at::Tensor some_tokens(std::int64_t rows, std::int64_t length) {
  at::Tensor tokens = at::randint(0, 512, {rows, length}, at::kLong);
  std::int64_t state = 17;
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    tokens.mutable_data_ptr<std::int64_t>()[i] =
        (state = (state * 1103515245 + 12345) % 2147483648) >> 8 & 511;
  return tokens;
}

std::map<std::string, at::Tensor> by_name(const LanguageModel& model) {
  std::map<std::string, at::Tensor> named;
  for (const NamedParameter& parameter : model.parameters())
    named[parameter.name] = parameter.tensor;
  return named;
}

TEST(LanguageModel, parameters_are_named_and_ordered_as_in_checkpoints) {
  job::ModelShape shape;
  shape.layers = 1;
  shape.tied_head = false;
  std::vector<std::string> names;
  const auto model = tiny(1, at::kFloat, shape);
  for (const NamedParameter& parameter : model->parameters()) {
    names.push_back(parameter.name);
    EXPECT_EQ(parameter.decay, parameter.name.find("norm") == std::string::npos) << parameter.name;
  }
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(names, (std::vector<std::string>{
                       "model.embed_tokens.weight", layer + "self_attn.q_proj.weight",
                       layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight",
                       layer + "self_attn.o_proj.weight", layer + "mlp.gate_proj.weight",
                       layer + "mlp.up_proj.weight", layer + "mlp.down_proj.weight",
                       layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight",
                       "model.norm.weight", "lm_head.weight"}));
}

TEST(LanguageModel, every_preset_is_constructed_on_meta_with_the_counted_parameters) {
  for (const job::Preset& preset : job::presets()) {
    auto model =
        LanguageModel::create(preset.shape, {.device = c10::kMeta, .dtype = at::kBFloat16});
    ASSERT_TRUE(model) << model.error().describe();
    std::int64_t count = 0;
    for (const NamedParameter& parameter : (*model)->parameters())
      count += parameter.tensor.numel();
    EXPECT_EQ(count, job::parameter_count(preset.shape)) << preset.name;
  }
}

TEST(LanguageModel, initial_values_depend_on_seed_and_name_alone) {
  job::ModelShape deeper;
  deeper.layers = 4;
  deeper.tied_head = false;
  auto model = tiny(), same = tiny(), other_seed = tiny(2), larger = tiny(1, at::kFloat, deeper);
  const auto ours = by_name(*model), same_ours = by_name(*same), other = by_name(*other_seed),
             large = by_name(*larger);
  for (const auto& [name, tensor] : ours) {
    EXPECT_TRUE(at::equal(tensor, same_ours.at(name))) << name;
    if (tensor.dim() == 1) continue;
    EXPECT_FALSE(at::equal(tensor, other.at(name))) << name;
    if (name.find("o_proj") == std::string::npos && name.find("down_proj") == std::string::npos) {
      EXPECT_TRUE(at::equal(tensor, large.at(name))) << name;
    }
  }
  EXPECT_FALSE(at::equal(ours.at("model.layers.0.self_attn.q_proj.weight"),
                         ours.at("model.layers.1.self_attn.q_proj.weight")));
  at::set_num_threads(2);
  auto threaded = LanguageModel::create({}, {.seed = 1}).value();
  at::set_num_threads(1);
  for (const auto& [name, tensor] : by_name(*threaded))
    EXPECT_TRUE(at::equal(tensor, ours.at(name))) << name;
}

TEST(LanguageModel, initial_values_have_the_deviation_of_their_kind) {
  auto model = tiny();
  for (const NamedParameter& parameter : model->parameters()) {
    const double mean = parameter.tensor.mean().item<double>(),
                 deviation = parameter.tensor.std().item<double>();
    if (parameter.tensor.dim() == 1) {
      EXPECT_EQ(parameter.tensor.min().item<double>(), 1.0) << parameter.name;
      EXPECT_EQ(parameter.tensor.max().item<double>(), 1.0) << parameter.name;
      continue;
    }
    const bool residual = parameter.name.find("o_proj") != std::string::npos ||
                          parameter.name.find("down_proj") != std::string::npos;
    const double expected = residual ? 0.02 / std::sqrt(2.0 * 2.0) : 0.02;
    const double root = std::sqrt(static_cast<double>(parameter.tensor.numel()));
    EXPECT_NEAR(mean, 0.0, 5 * expected / root) << parameter.name;
    EXPECT_NEAR(deviation, expected, 5 * expected / root) << parameter.name;
  }
}

TEST(LanguageModel, first_loss_is_that_of_a_guess) {
  auto model = tiny();
  const double loss = model->loss_sum(some_tokens(4, 65)).item<double>() / (4 * 64);
  EXPECT_NEAR(loss, std::log(512.0), 0.1);
}

TEST(LanguageModel, loss_is_the_sum_of_the_targets_log_probabilities) {
  auto model = tiny();
  at::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(3, 33);
  const at::Tensor chances =
      at::log_softmax(model->logits(tokens.narrow(1, 0, 32)).to(at::kDouble), -1);
  const at::Tensor picked = chances.gather(2, tokens.narrow(1, 1, 32).unsqueeze(2));
  const double loss = model->loss_sum(tokens).item<double>();
  EXPECT_NEAR(loss, -picked.sum().item<double>(), 1e-6 * loss);
}

TEST(LanguageModel, the_same_microbatch_gives_the_same_bits) {
  auto model = tiny();
  const at::Tensor tokens = some_tokens(4, 65);
  std::vector<at::Tensor> first;
  const at::Tensor loss = model->loss_sum(tokens);
  loss.backward();
  for (const NamedParameter& parameter : model->parameters()) {
    first.push_back(parameter.tensor.grad().clone());
    at::Tensor(parameter.tensor).mutable_grad().reset();
  }
  const at::Tensor again = model->loss_sum(tokens);
  again.backward();
  EXPECT_TRUE(at::equal(loss, again));
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(at::equal(first[i], model->parameters()[i].tensor.grad()))
        << model->parameters()[i].name;
}

TEST(LanguageModel, a_position_does_not_see_what_follows) {
  auto model = tiny();
  at::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(2, 24);
  const at::Tensor changed = tokens.clone();
  changed.select(1, 20).fill_(7);
  const at::Tensor before = model->logits(tokens), after = model->logits(changed);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 20), after.narrow(1, 0, 20)));
  EXPECT_FALSE(at::equal(before.select(1, 20), after.select(1, 20)));
  EXPECT_LT(model->last_logits(tokens).sub(before.select(1, 23)).abs().max().item<double>(), 1e-5);
}

TEST(LanguageModel, bf16_is_close_to_fp32) {
  auto wide = tiny(), narrow = tiny(1, at::kBFloat16);
  const at::Tensor tokens = some_tokens(4, 65);
  const at::Tensor loss = narrow->loss_sum(tokens), expected = wide->loss_sum(tokens);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 2e-3 * expected.item<double>());
  loss.backward();
  expected.backward();
  for (std::size_t i = 0; i < wide->parameters().size(); ++i) {
    const at::Tensor right = wide->parameters()[i].tensor.grad();
    const at::Tensor off = narrow->parameters()[i].tensor.grad().to(at::kFloat).sub(right);
    EXPECT_LT(off.norm().item<double>(), 0.05 * right.norm().item<double>())
        << wide->parameters()[i].name;
  }
}

TEST(LanguageModel, wrong_shapes_and_dtypes_are_refused) {
  job::ModelShape shape;
  shape.kv_heads = 3;
  auto result = LanguageModel::create(shape);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  result = LanguageModel::create({}, {.dtype = at::kLong});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
}

TEST(LanguageModel, no_memory_is_an_error_that_names_the_size) {
  job::ModelShape shape = job::preset_shape("llama3.1-405b").value();
  shape.vocabulary = std::int64_t{1} << 24;
  shape.dimension = std::int64_t{1} << 20;
  auto result = LanguageModel::create(shape);  // the embedding alone is 64 TiB
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::failed);
  EXPECT_NE(result.error().message.find(std::to_string(job::parameter_count(shape))),
            std::string::npos);
}

std::vector<std::int64_t> generated(LanguageModel& model, const GenerationOptions& options) {
  const std::vector<std::int64_t> prompt = {5, 6, 7};
  auto tokens = generate(model, prompt, options);
  EXPECT_TRUE(tokens) << tokens.error().describe();
  return tokens.value_or(std::vector<std::int64_t>{});
}

TEST(Generation, is_a_function_of_the_seed_and_goes_beyond_the_context) {
  job::ModelShape shape;
  shape.context_length = 8;
  auto model = tiny(1, at::kFloat, shape);
  const auto first = generated(*model, {.tokens_max = 20, .seed = 4});
  EXPECT_EQ(first.size(), 20U);
  EXPECT_EQ(first, generated(*model, {.tokens_max = 20, .seed = 4}));
  EXPECT_NE(first, generated(*model, {.tokens_max = 20, .seed = 5}));
  const auto shorter = generated(*model, {.tokens_max = 6, .seed = 4});
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), first.begin()));
}

TEST(Generation, at_temperature_zero_takes_the_largest_logit) {
  auto model = tiny();
  at::NoGradGuard no_grad;
  std::vector<std::int64_t> text = {5, 6, 7};
  const auto tokens = generated(*model, {.sampling = {.temperature = 0}, .tokens_max = 5});
  for (std::int64_t token : tokens) {
    const at::Tensor row =
        at::from_blob(text.data(), {1, static_cast<std::int64_t>(text.size())}, at::kLong);
    EXPECT_EQ(token, model->logits(row).select(1, row.size(1) - 1).argmax().item<std::int64_t>());
    text.push_back(token);
  }
}

TEST(Generation, stops_at_the_end_token_and_when_told) {
  auto model = tiny();
  const auto tokens = generated(*model, {.tokens_max = 10, .seed = 4});
  const auto until = generated(*model, {.tokens_max = 10, .end_token = tokens[3], .seed = 4});
  EXPECT_EQ(until.back(), tokens[3]);
  EXPECT_LE(until.size(), 4U);
  int seen = 0;
  const std::vector<std::int64_t> prompt = {5, 6, 7};
  EXPECT_EQ(generate(*model, prompt, {.tokens_max = 10}, [&](std::int64_t) { return ++seen < 3; })
                ->size(),
            3U);
}

TEST(Generation, refuses_what_the_model_does_not_know) {
  auto model = tiny();
  const std::vector<std::int64_t> foreign = {5, 512}, none, good = {1};
  EXPECT_EQ(generate(*model, foreign, {}).error().kind, ErrorKind::invalid);
  EXPECT_EQ(generate(*model, none, {}).error().kind, ErrorKind::invalid);
  EXPECT_EQ(generate(*model, good, {.tokens_max = -1}).error().kind, ErrorKind::invalid);
  EXPECT_EQ(generate(*model, good, {.sampling = {.top_p = 0}}).error().kind, ErrorKind::invalid);
  at::NoGradGuard no_grad;
  at::Tensor(model->parameters()[0].tensor).fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(generate(*model, good, {}).error().kind, ErrorKind::failed);
}

}  // namespace
}  // namespace teson::model
