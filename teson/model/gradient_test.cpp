#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"
#include "teson/model/language_model.h"
#include "teson/model/llama_reference_test.h"

namespace teson::model {
namespace {

struct Case {
  const char* name;
  std::int64_t kv_heads;
  bool tied, scaled;
};

job::ModelShape shape_of(const Case& each) {
  job::ModelShape shape;
  shape.vocabulary = 61, shape.dimension = 48, shape.layers = 2, shape.heads = 4,
  shape.kv_heads = each.kv_heads;
  shape.feed_forward = 72, shape.context_length = 40, shape.tied_head = each.tied;
  if (each.scaled) shape.rope_scaling = job::RopeScaling{8, 1, 4, 64}, shape.rope_theta = 1000;
  return shape;
}

// Far from the initial weights, so that every path carries gradient: attention sharp, norms
// unequal.
void spread(LanguageModel& model) {
  at::NoGradGuard no_grad;
  CounterRandom random({5});
  for (const NamedParameter& parameter : model.parameters()) {
    at::Tensor tensor = parameter.tensor;
    if (parameter.decay) tensor.mul_(8.0);
    if (!parameter.decay)
      for (std::int64_t i = 0; i < tensor.numel(); ++i)
        tensor.select(0, i).fill_(1.0 + 0.2 * random.normal());
  }
}

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

std::vector<Row> random_rows(const job::ModelShape& shape, std::int64_t count) {
  CounterRandom random({9});
  std::vector<Row> rows(static_cast<std::size_t>(count));
  for (Row& row : rows)
    for (std::int64_t i = 0; i <= shape.context_length; ++i)
      row.push_back(
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape.vocabulary))));
  return rows;
}

at::Tensor tensor_of(const std::vector<Row>& rows) {
  std::vector<std::int64_t> all;
  for (const Row& row : rows)
    all.insert(all.end(), row.begin(), row.end());
  return at::from_blob(
             all.data(),
             {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())},
             at::kLong)
      .clone();
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double value : values)
    most = std::max(most, std::abs(value));
  return most;
}

void expect_equal_to_reference(const Case& each, at::ScalarType dtype, double tolerance) {
  at::set_num_threads(1);
  auto model = LanguageModel::create(shape_of(each), {.dtype = dtype, .seed = 3}).value();
  spread(*model);
  LlamaReference reference{model->shape(), {}, {}};
  for (const NamedParameter& parameter : model->parameters())
    reference.weights[parameter.name] = doubles(parameter.tensor);

  const std::vector<Row> rows = random_rows(model->shape(), 3);
  const at::Tensor loss = model->loss_sum(tensor_of(rows));
  loss.backward();
  const double expected = reference.backward(rows);
  EXPECT_NEAR(loss.item<double>(), expected, tolerance * expected) << each.name;
  double worst = 0;
  for (const NamedParameter& parameter : model->parameters()) {
    const std::vector<double>& right = reference.gradients.at(parameter.name);
    std::vector<double> difference = doubles(parameter.tensor.grad());
    ASSERT_EQ(difference.size(), right.size()) << parameter.name;
    for (std::size_t i = 0; i < right.size(); ++i)
      difference[i] -= right[i];
    EXPECT_GT(norm_of(right), 0) << parameter.name;
    const double off =
        std::max(norm_of(difference) / norm_of(right), largest(difference) / largest(right));
    EXPECT_LT(off, tolerance) << each.name << " " << parameter.name;
    worst = std::max(worst, off);
  }
  ::testing::Test::RecordProperty(each.name, std::to_string(worst * 1e9) + "e-9");
}

constexpr Case kCases[] = {
    {"grouped_untied_scaled", 2, false, true},
    {"grouped_tied_plain", 2, true, false},
    {"one_kv_head_tied_scaled", 1, true, true},
    {"all_kv_heads_untied_plain", 4, false, false},
};

TEST(Gradient, in_fp32_equals_the_float64_reference_to_1e_5) {
  for (const Case& each : kCases)
    expect_equal_to_reference(each, at::kFloat, 1e-5);
}

TEST(Gradient, in_double_equals_the_float64_reference_to_rounding) {
  for (const Case& each : kCases)
    expect_equal_to_reference(each, at::kDouble, 1e-11);
}

}  // namespace
}  // namespace teson::model
