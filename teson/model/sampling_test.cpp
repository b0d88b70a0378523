#include "teson/model/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace teson::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How often each token is drawn over an even grid of `uniform`.
std::map<std::int64_t, double> shares(const std::vector<float>& logits,
                                      const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::map<std::int64_t, double> share;
  for (int i = 0; i < kDraws; ++i)
    share[sample_token(logits, options, i / double{kDraws}).value()] += 1.0 / kDraws;
  return share;
}

TEST(Sampling, draws_tokens_as_often_as_their_softmax_says) {
  const std::vector<float> logits = {0.5F, -1.0F, 2.0F, 2.0F};
  for (const double temperature : {1.0, 0.7, 3.0}) {
    double total = 0;
    for (float logit : logits)
      total += std::exp(logit / temperature);
    const auto share = shares(logits, {.temperature = temperature});
    for (std::int64_t token = 0; token < 4; ++token)
      EXPECT_NEAR(share.at(token),
                  std::exp(logits[static_cast<std::size_t>(token)] / temperature) / total, 2e-4);
  }
}

TEST(Sampling, lays_tokens_out_from_the_likeliest_down) {
  const std::vector<float> logits = {0.0F, 1.0F, 1.0F};
  EXPECT_EQ(sample_token(logits, {}, 0.0).value(), 1);
  EXPECT_EQ(sample_token(logits, {}, 0.5).value(), 2);
  EXPECT_EQ(sample_token(logits, {}, std::nextafter(1.0, 0.0)).value(), 0);
}

TEST(Sampling, top_k_keeps_the_k_likeliest) {
  const std::vector<float> logits = {0.0F, 3.0F, 1.0F, 2.0F};
  const auto share = shares(logits, {.top_k = 2});
  EXPECT_EQ(share.size(), 2U);
  EXPECT_NEAR(share.at(1), 1 / (1 + std::exp(-1.0)), 2e-4);
  EXPECT_EQ(shares(logits, {.top_k = 1}).size(), 1U);
  EXPECT_EQ(shares(logits, {.top_k = 100}).size(), 4U);
}

TEST(Sampling, top_p_keeps_the_fewest_that_reach_it) {
  // Probabilities 0.5, 0.25, 0.15, 0.1.
  const std::vector<float> logits = {std::log(0.15F), std::log(0.5F), std::log(0.1F),
                                     std::log(0.25F)};
  EXPECT_EQ(shares(logits, {.top_p = 0.4}).size(), 1U);
  EXPECT_EQ(shares(logits, {.top_p = 0.7}).size(), 2U);
  EXPECT_EQ(shares(logits, {.top_p = 0.8}).size(), 3U);
  EXPECT_NEAR(shares(logits, {.top_p = 0.8}).at(1), 0.5 / 0.9, 2e-4);
  EXPECT_EQ(shares(logits, {.top_p = 0.95}).size(), 4U);
  EXPECT_EQ(shares(logits, {.top_k = 3, .top_p = 0.5}).size(), 1U);
}

TEST(Sampling, temperature_zero_takes_the_first_of_the_largest) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 5, 5, 2}, {.temperature = 0}, 0.99).value(), 1);
}

TEST(Sampling, survives_infinities_and_extremes) {
  const std::vector<float> one_left = {-kInfinity, 4, -kInfinity};
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    EXPECT_EQ(sample_token(one_left, {}, uniform).value(), 1);
    EXPECT_EQ(sample_token(std::vector<float>{0, 3e38F}, {.temperature = 1e-300}, uniform).value(),
              1);
  }
  EXPECT_EQ(sample_token(std::vector<float>{-3e38F, 3e38F}, {.temperature = 1e-3}, 0.5).value(), 1);
}

TEST(Sampling, broken_logits_and_options_are_errors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sample_token(std::vector<float>{1, nan}, {}, 0.5).error().kind, ErrorKind::failed);
  EXPECT_EQ(sample_token(std::vector<float>{nan, 1}, {.temperature = 0}, 0.5).error().kind,
            ErrorKind::failed);
  EXPECT_EQ(sample_token(std::vector<float>{-kInfinity, -kInfinity}, {}, 0.5).error().kind,
            ErrorKind::failed);
  EXPECT_EQ(sample_token(std::vector<float>{1, kInfinity}, {}, 0.5).error().kind,
            ErrorKind::failed);
  EXPECT_EQ(sample_token(std::vector<float>{}, {}, 0.5).error().kind, ErrorKind::failed);
  EXPECT_EQ(sample_token(std::vector<float>{1}, {.temperature = -1}, 0.5).error().kind,
            ErrorKind::invalid);
  EXPECT_EQ(sample_token(std::vector<float>{1}, {.top_k = -1}, 0.5).error().kind,
            ErrorKind::invalid);
  EXPECT_EQ(sample_token(std::vector<float>{1}, {.top_p = 1.5}, 0.5).error().kind,
            ErrorKind::invalid);
}

}  // namespace
}  // namespace teson::model
