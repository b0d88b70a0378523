#include "teson/train/flat_parameters.h"

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "teson/model/language_model.h"
#include "teson/train/adamw.h"
#include "teson/train/gradient_norm.h"

namespace teson::train {
namespace {

struct Trainable {
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<FlatParameters> flat;
  std::vector<float> buffer;
};

job::ModelShape odd_shape(bool tied = true) {
  job::ModelShape shape;
  shape.vocabulary = 97, shape.dimension = 36, shape.heads = 6, shape.kv_heads = 3,
  shape.feed_forward = 53;
  shape.tied_head = tied;
  return shape;
}

std::unique_ptr<model::LanguageModel> make_model(bool tied = true) {
  at::set_num_threads(1);
  return model::LanguageModel::create(odd_shape(tied), {.seed = 2}).value();
}

Trainable make(at::ScalarType compute = at::kFloat, bool tied = true) {
  Trainable all{make_model(tied), nullptr, {}};
  all.flat = FlatParameters::create(*all.model, compute).value();
  all.buffer.assign(static_cast<std::size_t>(all.flat->elements()),
                    std::numeric_limits<float>::quiet_NaN());
  all.flat->bind_gradients(all.buffer.data());
  all.flat->zero_gradients();
  return all;
}

at::Tensor tokens_of(std::int64_t key) {
  return at::arange(3 * 17, at::kLong).mul(key * 2 + 1).add(key).remainder(97).view({3, 17});
}

float* element(Trainable& all, const std::string& name, std::vector<float>& values) {
  return values.data() + all.flat->layout().find(name)->offset;
}

TEST(FlatParameters, the_module_shares_the_master_weights) {
  Trainable all = make();
  const auto fresh = make_model();
  ASSERT_EQ(all.flat->layout().entries.size(), all.model->parameters().size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.flat->weights()) % 64, 0U);
  for (std::size_t i = 0; i < fresh->parameters().size(); ++i) {
    const FlatEntry& entry = all.flat->layout().entries[i];
    const model::NamedParameter& parameter = all.model->parameters()[i];
    EXPECT_EQ(entry.name, parameter.name);
    EXPECT_EQ(entry.decay, parameter.decay);
    EXPECT_EQ(entry.shape, parameter.tensor.sizes().vec());
    EXPECT_EQ(parameter.tensor.const_data_ptr<float>(), all.flat->weights() + entry.offset);
    EXPECT_TRUE(at::equal(parameter.tensor, fresh->parameters()[i].tensor)) << entry.name;
  }
  const double before = all.model->loss_sum(tokens_of(1)).item<double>();
  for (std::int64_t i = 0; i < all.flat->elements(); ++i)
    all.flat->weights()[i] *= 1.5F;
  all.flat->publish();
  EXPECT_NE(all.model->loss_sum(tokens_of(1)).item<double>(), before);
}

TEST(FlatParameters, backward_leaves_the_plain_gradients_in_the_buffer) {
  for (const bool tied : {true, false}) {
    Trainable all = make(at::kFloat, tied);
    const auto plain = make_model(tied);
    plain->loss_sum(tokens_of(1)).backward();
    all.model->loss_sum(tokens_of(1)).backward();
    all.flat->collect_gradients();
    for (const model::NamedParameter& parameter : plain->parameters()) {
      const at::Tensor expected = parameter.tensor.grad().contiguous();
      const float* got = element(all, parameter.name, all.buffer);
      for (std::int64_t i = 0; i < expected.numel(); ++i)
        ASSERT_EQ(got[i], expected.const_data_ptr<float>()[i]) << parameter.name << " " << i;
    }
    double sum = 0;
    for (float value : all.buffer)
      sum += static_cast<double>(value) * value;
    EXPECT_NEAR(square_sum(all.flat->layout(), all.buffer.data()), sum,
                1e-12 * sum);  // so the gaps are zero
  }
}

TEST(FlatParameters, microbatches_add_up_in_order) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    Trainable all = make(compute);
    std::vector<float> parts[2] = {all.buffer, all.buffer}, both = all.buffer;
    for (int i = 0; i < 2; ++i) {
      all.flat->bind_gradients(parts[i].data());
      all.model->loss_sum(tokens_of(i)).backward();
      all.flat->collect_gradients();
    }
    all.flat->bind_gradients(both.data());
    for (int i = 0; i < 2; ++i) {
      all.model->loss_sum(tokens_of(i)).backward();
      all.flat->collect_gradients();
    }
    for (std::size_t i = 0; i < both.size(); ++i)
      ASSERT_EQ(both[i], parts[0][i] + parts[1][i]) << i;
    EXPECT_EQ(all.buffer, std::vector<float>(all.buffer.size(), 0.0F))
        << "a buffer that is no longer bound was written";
  }
}

TEST(FlatParameters, a_repeated_lane_gives_the_same_bits) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    Trainable all = make(compute), other = make(compute);
    std::vector<float> again(all.buffer.size());
    const auto lane = [](Trainable& which, float* buffer) {
      which.flat->bind_gradients(buffer);
      which.flat->zero_gradients();
      at::Tensor loss = which.model->loss_sum(tokens_of(3));
      loss.backward();
      which.flat->collect_gradients();
      return loss.item<float>();
    };
    const float loss = lane(all, all.buffer.data());
    EXPECT_EQ(lane(all, again.data()), loss);
    EXPECT_EQ(again, all.buffer);
    EXPECT_EQ(lane(other, again.data()), loss);
    EXPECT_EQ(again, all.buffer);
  }
}

TEST(FlatParameters, bf16_rounds_the_master_weights_and_gives_gradients_close_to_fp32) {
  Trainable narrow = make(at::kBFloat16), wide = make();
  for (const model::NamedParameter& parameter : narrow.model->parameters()) {
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(parameter.tensor.requires_grad());
  }
  for (Trainable* all : {&narrow, &wide}) {
    all->model->loss_sum(tokens_of(1)).backward();
    all->flat->collect_gradients();
  }
  std::vector<float> difference = narrow.buffer;
  for (std::size_t i = 0; i < difference.size(); ++i)
    difference[i] -= wide.buffer[i];
  const FlatLayout& layout = wide.flat->layout();
  EXPECT_LT(std::sqrt(square_sum(layout, difference.data())),
            0.02 * std::sqrt(square_sum(layout, wide.buffer.data())));

  EXPECT_TRUE(std::equal(wide.flat->weights(), wide.flat->weights() + wide.flat->elements(),
                         narrow.flat->weights()));
  narrow.flat->weights()[0] = 1.0F + 0x1p-12F;
  narrow.flat->publish();
  EXPECT_EQ(narrow.model->parameters()[0].tensor.flatten()[0].item<float>(), 1.0F);
}

TEST(FlatParameters, training_on_one_batch_lowers_its_loss_and_keeps_gaps_zero) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    Trainable all = make(compute);
    std::vector<float> m(all.buffer.size(), 0.0F), v = m;
    double first = 0, last = 0;
    for (std::int64_t update = 1; update <= 40; ++update) {
      all.flat->zero_gradients();
      at::Tensor loss = all.model->loss_sum(tokens_of(1));
      loss.backward();
      all.flat->collect_gradients();
      last = loss.item<double>() / 48;
      if (update == 1) first = last;
      const double norm = std::sqrt(square_sum(all.flat->layout(), all.buffer.data())) / 48;
      const auto scale = static_cast<float>(clip_factor(norm, 1.0) / 48);
      adamw_update(all.flat->layout(), adamw_step({}, 1e-2, update, scale), all.flat->weights(),
                   all.buffer.data(), m.data(), v.data());
      all.flat->publish();
    }
    EXPECT_NEAR(first, std::log(97.0), 0.1);
    EXPECT_LT(last, 0.5);
    std::vector<bool> used(all.buffer.size(), false);
    for (const FlatBlock& block : all.flat->layout().blocks)
      std::fill(used.begin() + block.begin, used.begin() + block.end, true);
    for (std::size_t i = 0; i < used.size(); ++i)
      ASSERT_TRUE(used[i] || all.flat->weights()[i] == 0.0F) << i;
  }
}

TEST(FlatParameters, refuses_models_it_cannot_flatten) {
  const auto double_model =
      model::LanguageModel::create(odd_shape(), {.dtype = at::kDouble}).value();
  EXPECT_EQ(FlatParameters::create(*double_model).error().kind, ErrorKind::invalid);
  const auto meta_model = model::LanguageModel::create(odd_shape(), {.device = c10::kMeta}).value();
  EXPECT_EQ(FlatParameters::create(*meta_model).error().kind, ErrorKind::invalid);
  const auto model = make_model();
  EXPECT_EQ(FlatParameters::create(*model, at::kHalf).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace teson::train
