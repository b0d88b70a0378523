#include "teson/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "teson/data/test_folder.h"

namespace teson::data {
namespace {

using ::testing::HasSubstr;

/// Token i is i: a window tells where it came from.
TokenStream counting_stream(std::size_t tokens) {
  std::vector<TokenId> ids(tokens);
  std::iota(ids.begin(), ids.end(), 0);
  return TokenStream::from_memory(std::move(ids));
}

std::vector<SampleId> draw(const Sampler& sampler, std::uint64_t first_step, std::uint64_t steps) {
  std::vector<SampleId> drawn;
  for (std::uint64_t step = first_step; step < first_step + steps; ++step) {
    for (std::uint32_t lane = 0; lane < sampler.options().lanes; ++lane) {
      for (std::uint32_t microbatch = 0; microbatch < sampler.options().microbatches;
           ++microbatch) {
        for (const SampleId id : sampler.samples_of(step, lane, microbatch))
          drawn.push_back(id);
      }
    }
  }
  return drawn;
}

TEST(Permutation, is_a_bijection_for_every_small_size) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Permutation permutation(size, 5, epoch);
      std::set<std::uint64_t> seen;
      for (std::uint64_t at = 0; at < size; ++at)
        seen.insert(permutation(at));
      ASSERT_EQ(seen.size(), size);
      ASSERT_LT(*seen.rbegin(), size);
    }
  }
}

TEST(Permutation, is_a_bijection_around_powers_of_two) {
  for (const std::uint64_t size : {65'535ULL, 65'536ULL, 65'537ULL, 100'003ULL}) {
    const Permutation permutation(size, 1, 9);
    std::vector<bool> seen(size);
    for (std::uint64_t at = 0; at < size; ++at) {
      ASSERT_FALSE(seen[permutation(at)]);
      seen[permutation(at)] = true;
    }
  }
}

TEST(Permutation, stays_in_range_for_huge_sizes) {
  for (const std::uint64_t size : {(1ULL << 40) + 1, 1ULL << 62}) {
    const Permutation permutation(size, 1, 1);
    for (std::uint64_t at = 0; at < 2'000; ++at)
      ASSERT_LT(permutation(at), size);
    ASSERT_LT(permutation(size - 1), size);
  }
}

TEST(Permutation, spreads_first_places_evenly_over_seeds) {
  // Where position 0 goes over many seeds, in 20 cells: chi-square with 19 degrees of freedom,
  // 99.9th percentile 43.8.
  constexpr int kSeeds = 20'000;
  for (const std::uint64_t position : {0ULL, 1ULL, 999ULL}) {
    std::vector<int> cells(20);
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      ++cells[Permutation(1000, seed, 0)(position) / 50];
    double chi_square = 0;
    for (const int count : cells)
      chi_square += std::pow(count - kSeeds / 20.0, 2) / (kSeeds / 20.0);
    EXPECT_LT(chi_square, 43.8) << position;
  }
}

TEST(Permutation, has_no_more_fixed_points_or_neighbours_than_chance) {
  // Both are Poisson with mean 1 for one permutation: over 2,000 of them, 2,000 within five
  // standard deviations.
  int fixed = 0, neighbours = 0;
  for (std::uint64_t epoch = 0; epoch < 2'000; ++epoch) {
    const Permutation permutation(777, 3, epoch);
    for (std::uint64_t at = 0; at < 777; ++at) {
      fixed += permutation(at) == at;
      neighbours += at > 0 && permutation(at) == permutation(at - 1) + 1;
    }
  }
  EXPECT_NEAR(fixed, 2'000, 5 * std::sqrt(2'000));
  EXPECT_NEAR(neighbours, 2'000, 5 * std::sqrt(2'000));
}

TEST(Permutation, of_one_epoch_says_nothing_about_another) {
  const Permutation first(1'000, 3, 0), second(1'000, 3, 1), other_seed(1'000, 4, 0);
  int same = 0;
  for (std::uint64_t at = 0; at < 1'000; ++at)
    same += first(at) == second(at) || first(at) == other_seed(at);
  EXPECT_LT(same, 12);  // Poisson with mean 2
}

TEST(Sampler, draws_every_sample_exactly_once_an_epoch) {
  // 101 samples (prime) against 2 lanes x 3 microbatches x 5 rows: epochs end inside steps.
  const Sampler sampler = *Sampler::make(counting_stream(101 * 4 + 3), {7, 2, 3, 5, 4});
  ASSERT_EQ(sampler.samples(), 101u);
  const auto drawn = draw(sampler, 0, 101);  // 3,030 draws: 30 epochs exactly
  for (std::size_t epoch = 0; epoch < 30; ++epoch) {
    std::set<std::uint64_t> indices;
    for (std::size_t i = 0; i < 101; ++i) {
      const SampleId id = drawn[epoch * 101 + i];
      ASSERT_EQ(id.epoch, epoch);
      indices.insert(id.index);
    }
    ASSERT_EQ(indices.size(), 101u);
    ASSERT_EQ(*indices.rbegin(), 100u);
  }
}

TEST(Sampler, answers_depend_on_the_question_alone) {
  const Sampler one = *Sampler::make(counting_stream(5'000), {7, 4, 2, 3, 8});
  const Sampler two = *Sampler::make(counting_stream(5'000), {7, 4, 2, 3, 8});
  const auto forward = draw(one, 0, 100);
  std::vector<SampleId> backward;
  for (std::uint64_t step = 100; step-- > 0;) {
    for (std::uint32_t lane = 4; lane-- > 0;) {
      for (std::uint32_t microbatch = 2; microbatch-- > 0;) {
        for (std::uint32_t row = 3; row-- > 0;)
          backward.push_back(two.sample(step, lane, microbatch, row));
      }
    }
  }
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward, draw(*Sampler::make(counting_stream(5'000), {8, 4, 2, 3, 8}), 0, 100));
}

TEST(Sampler, goes_on_exactly_at_the_end_of_an_epoch) {
  // 40 samples, 8 a step: step 5 begins epoch 1.
  const Sampler sampler = *Sampler::make(counting_stream(40 * 16 + 1), {1, 2, 2, 2, 16});
  EXPECT_EQ(sampler.sample(4, 1, 1, 1).epoch, 0u);
  EXPECT_EQ(sampler.sample(5, 0, 0, 0).epoch, 1u);
  const auto whole = draw(sampler, 0, 12);
  const auto resumed = draw(*Sampler::make(counting_stream(40 * 16 + 1), {1, 2, 2, 2, 16}), 5, 7);
  EXPECT_TRUE(std::equal(resumed.begin(), resumed.end(), whole.begin() + 40));
}

TEST(Sampler, reads_the_windows_it_names) {
  const Sampler sampler = *Sampler::make(counting_stream(1'000), {3, 2, 2, 4, 10});
  ASSERT_EQ(sampler.samples(), 99u);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto batch = sampler.read(step, 1, 0);
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->rows, 4u);
    ASSERT_EQ(batch->width, 11u);
    ASSERT_EQ(batch->samples, sampler.samples_of(step, 1, 0));
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t column = 0; column < 11; ++column) {
        ASSERT_EQ(batch->tokens[row * 11 + column],
                  static_cast<std::int64_t>(batch->samples[row].index * 10 + column));
      }
    }
  }
}

TEST(Sampler, says_how_many_tokens_a_step_needs) {
  const SamplerOptions options{1, 4, 2, 8, 16};  // 64 samples of 16 tokens, and one more
  EXPECT_TRUE(Sampler::make(counting_stream(1'025), options));
  const auto sampler = Sampler::make(counting_stream(1'024), options);
  EXPECT_EQ(sampler.error().kind, ErrorKind::invalid);
  EXPECT_THAT(sampler.error().message, HasSubstr("has 1024 tokens, one step needs 1025 (4 lanes x "
                                                 "2 microbatches x 8 sequences x 16 tokens"));
  EXPECT_THAT(Sampler::make(counting_stream(0), options).error().message,
              HasSubstr("has 0 tokens"));
}

TEST(Sampler, names_the_shard_that_was_cut_short_under_it) {
  TestFolder folder;
  const Tokenizer tokenizer = *Tokenizer::make({});
  ShardWriter writer(folder.path(), "train", tokenizer, 1 << 20);
  ASSERT_TRUE(writer.append(std::vector<TokenId>(10'000, 7)));
  const auto entries = *writer.finish();
  const Sampler sampler = *Sampler::make(
      *TokenStream::open(folder.path(), entries, tokenizer.fingerprint()), {1, 1, 1, 2, 16});
  ASSERT_TRUE(sampler.read(0, 0, 0));
  ASSERT_EQ(::truncate((folder.path() / entries[0].file).c_str(), entries[0].bytes - 1), 0);
  for (std::uint64_t step = 0; step < 10; ++step) {
    EXPECT_THAT(sampler.read(step, 0, 0).error().message,
                HasSubstr("train-00000.tokens' has changed while in use"));
  }
}

TEST(SampleHash, tells_order_and_members_apart) {
  const std::vector<SampleId> ids = {{0, 1}, {0, 2}}, swapped = {{0, 2}, {0, 1}},
                              next_epoch = {{0, 1}, {1, 2}};
  EXPECT_EQ(sample_hash(ids), sample_hash(std::vector<SampleId>(ids)));
  EXPECT_NE(sample_hash(ids), sample_hash(swapped));
  EXPECT_NE(sample_hash(ids), sample_hash(next_epoch));
}

TEST(ValidationSet, covers_the_split_when_it_is_small) {
  const ValidationSet set = *ValidationSet::make(counting_stream(10 * 7 + 5), 3, 10, 100);
  ASSERT_EQ(set.windows(), 7u);
  ASSERT_EQ(set.batches(), 3u);
  std::vector<std::int64_t> first;
  std::size_t rows = 0;
  for (std::uint32_t i = 0; i < set.batches(); ++i) {
    const Batch batch = *set.read(i);
    EXPECT_EQ(batch.width, 11u);
    EXPECT_EQ(batch.tokens.size(), batch.rows * 11);
    rows += batch.rows;
    for (std::size_t row = 0; row < batch.rows; ++row)
      first.push_back(batch.tokens[row * 11]);
  }
  EXPECT_EQ(rows, 7u);
  EXPECT_THAT(first, ::testing::ElementsAre(0, 10, 20, 30, 40, 50, 60));
}

TEST(ValidationSet, is_bounded_and_spread_over_a_large_split) {
  const ValidationSet set = *ValidationSet::make(counting_stream(10 * 1'000 + 1), 4, 10, 5);
  ASSERT_EQ(set.windows(), 20u);
  ASSERT_EQ(set.batches(), 5u);
  EXPECT_EQ(set.read(0)->tokens[0], 0);
  EXPECT_EQ(set.read(4)->tokens[3 * 11], 950 * 10);
}

TEST(ValidationSet, says_how_many_tokens_it_needs) {
  EXPECT_THAT(ValidationSet::make(counting_stream(10), 1, 10, 1).error().message,
              HasSubstr("has 10 tokens, one sequence needs 11"));
}

}  // namespace
}  // namespace teson::data
