#include "teson/train/adamw.h"

#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::train {
namespace {

struct Storage {
  FlatLayout layout;
  std::vector<float> weights, gradients, m, v;

  Storage() {
    layout.add("matrix", {300, 401}, true);
    layout.add("norm", {401}, false);
    layout.add("scalar", {1}, true);
    const auto size = static_cast<std::size_t>(layout.elements);
    weights.assign(size, 0), gradients.assign(size, 0), m.assign(size, 0), v.assign(size, 0);
    draw(weights, 1, 0.02);
  }
  void draw(std::vector<float>& values, std::uint64_t key, double deviation) const {
    CounterRandom random({key});
    for (const FlatBlock& block : layout.blocks)
      for (std::int64_t i = block.begin; i < block.end; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<float>(deviation * random.normal());
  }
  void step(const AdamWStep& numbers) {
    adamw_update(layout, numbers, weights.data(), gradients.data(), m.data(), v.data());
  }
};

job::OptimizerSection config() {
  job::OptimizerSection optimizer;
  optimizer.beta1 = 0.9, optimizer.beta2 = 0.95, optimizer.epsilon = 1e-8,
  optimizer.weight_decay = 0.1;
  return optimizer;
}

double rate_of(std::int64_t update) {
  return 1e-3 * static_cast<double>(update);
}
double scale_of(std::int64_t update) {
  return update % 2 == 0 ? 1.0 / 512 : 1.0 / 300;
}

TEST(AdamW, follows_a_float64_loop) {
  Storage storage;
  std::vector<double> weights(storage.weights.begin(), storage.weights.end()),
      m(weights.size(), 0.0), v(weights.size(), 0.0);
  for (std::int64_t update = 1; update <= 8; ++update) {
    storage.draw(storage.gradients, 10 + static_cast<std::uint64_t>(update), 5.0);
    const double rate = rate_of(update), scale = scale_of(update);
    for (const FlatEntry& entry : storage.layout.entries) {
      for (std::int64_t e = entry.offset; e < entry.offset + entry.elements; ++e) {
        const auto i = static_cast<std::size_t>(e);
        const double gradient = scale * static_cast<double>(storage.gradients[i]);
        if (entry.decay) weights[i] -= rate * 0.1 * weights[i];
        m[i] = 0.9 * m[i] + 0.1 * gradient;
        v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
        const double m_hat = m[i] / (1 - std::pow(0.9, update)),
                     v_hat = v[i] / (1 - std::pow(0.95, update));
        weights[i] -= rate * m_hat / (std::sqrt(v_hat) + 1e-8);
      }
    }
    storage.step(adamw_step(config(), rate, update, static_cast<float>(scale)));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_NEAR(storage.weights[i], weights[i], 2e-7 + 1e-6 * std::abs(weights[i])) << i;
    ASSERT_NEAR(storage.m[i], m[i], 1e-6 * (std::abs(m[i]) + 5.0 / 512)) << i;
    ASSERT_NEAR(storage.v[i], v[i], 1e-6 * (v[i] + 1e-4)) << i;
  }
}

// The kernel behind torch.optim.AdamW(fused=True).
TEST(AdamW, follows_the_fused_kernel_of_libtorch) {
  at::set_num_threads(1);
  Storage storage;
  Storage theirs;
  for (std::int64_t update = 1; update <= 8; ++update) {
    storage.draw(storage.gradients, 20 + static_cast<std::uint64_t>(update), 0.01);
    theirs.gradients = storage.gradients;
    storage.step(adamw_step(config(), rate_of(update), update, 1.0F));
    for (const FlatEntry& entry : theirs.layout.entries) {
      const auto part = [&](std::vector<float>& values) {
        return std::vector<at::Tensor>{
            at::from_blob(values.data() + entry.offset, {entry.elements}, at::kFloat)};
      };
      float count = static_cast<float>(update);
      const std::vector<at::Tensor> steps = {at::from_blob(&count, {}, at::kFloat)};
      const std::vector<at::Tensor> weights = part(theirs.weights), m = part(theirs.m),
                                    v = part(theirs.v);
      at::_fused_adamw_(weights, part(theirs.gradients), m, v, {}, steps, rate_of(update), 0.9,
                        0.95, entry.decay ? 0.1 : 0.0, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
    }
  }
  for (std::size_t i = 0; i < storage.weights.size(); ++i) {
    ASSERT_NEAR(storage.weights[i], theirs.weights[i], 2e-7 + 1e-6 * std::abs(theirs.weights[i]))
        << i;
    ASSERT_NEAR(storage.m[i], theirs.m[i], 1e-6 * 0.01) << i;
  }
}

TEST(AdamW, gives_the_same_bits_for_any_threads_ranges_and_alignment) {
  const AdamWStep numbers = adamw_step(config(), 1e-3, 1, 0.5F);
  at::set_num_threads(1);
  Storage expected;
  expected.draw(expected.gradients, 3, 1.0);
  Storage start = expected;
  expected.step(numbers);

  at::set_num_threads(2);
  Storage threaded = start;
  threaded.step(numbers);
  at::set_num_threads(1);
  EXPECT_EQ(threaded.weights, expected.weights);

  Storage ranged = start;
  for (std::int64_t begin = 0; begin < ranged.layout.elements; begin += 12345)
    adamw_update_range(ranged.layout, numbers, ranged.weights.data(), ranged.gradients.data(),
                       ranged.m.data(), ranged.v.data(), begin,
                       std::min(ranged.layout.elements, begin + 12345));
  EXPECT_EQ(ranged.weights, expected.weights);
  EXPECT_EQ(ranged.m, expected.m);
  EXPECT_EQ(ranged.v, expected.v);

  Storage shifted = start;
  for (auto* values : {&shifted.weights, &shifted.gradients})
    values->insert(values->begin(), 3, 0.0F);
  shifted.m.insert(shifted.m.begin(), 1, 0.0F);
  adamw_update(shifted.layout, numbers, shifted.weights.data() + 3, shifted.gradients.data() + 3,
               shifted.m.data() + 1, shifted.v.data());
  EXPECT_TRUE(
      std::equal(expected.weights.begin(), expected.weights.end(), shifted.weights.begin() + 3));
}

TEST(AdamW, leaves_gaps_and_undecayed_weights_alone) {
  Storage storage;
  std::fill(storage.gradients.begin(), storage.gradients.end(), 0.0F);
  const std::vector<float> before = storage.weights;
  storage.weights[storage.weights.size() - 1] = storage.gradients[storage.weights.size() - 1] =
      7.0F;  // a gap, spoiled
  storage.step(adamw_step(config(), 1e-2, 1, 1.0F));
  EXPECT_EQ(storage.weights.back(), 7.0F);
  const FlatEntry& matrix = *storage.layout.find("matrix");
  const FlatEntry& norm = *storage.layout.find("norm");
  const auto at = [](const FlatEntry& entry) { return static_cast<std::size_t>(entry.offset); };
  EXPECT_EQ(storage.weights[at(norm)], before[at(norm)]);
  EXPECT_NEAR(storage.weights[at(matrix)], before[at(matrix)] * (1 - 1e-3), 3e-9);
}

}  // namespace
}  // namespace teson::train
