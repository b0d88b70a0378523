#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "teson/base/error.h"
#include "teson/data/token_shards.h"

namespace teson::data {

/// A keyed bijection of [0, size): which sample is drawn at which place of an epoch, in constant
/// memory. A balanced Feistel network of six rounds over the next even power of two, walked until
/// it falls inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Threads:
/// any.
class Permutation {
 public:
  /// size >= 1.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  /// position < size.
  std::uint64_t operator()(std::uint64_t position) const;

 private:
  static constexpr int kRounds = 6;
  std::uint64_t size_;
  int half_bits_;
  std::uint64_t keys_[kRounds];
};

/// Which sample: pass over the training split, and number of the window in it. Each occurs once in
/// a run's committed history.
struct SampleId {
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
  auto operator<=>(const SampleId&) const = default;
};

/// Digest of sample ids in order, for the ledger and for comparing what replicas used.
std::uint64_t sample_hash(std::span<const SampleId> ids);

/// One microbatch of one lane. Row r is tokens[r·width … (r+1)·width): inputs are its first width -
/// 1, targets its last width - 1.
struct Batch {
  std::size_t rows = 0;
  std::size_t width = 0;             ///< sequence_length + 1
  std::vector<std::int64_t> tokens;  ///< [rows, width], row-major
  std::vector<SampleId> samples;     ///< one a row; empty for validation
};

struct SamplerOptions {
  std::uint64_t seed = 1;
  std::uint32_t lanes = 1;            ///< L
  std::uint32_t microbatches = 1;     ///< M, of a lane in a step
  std::uint32_t rows = 1;             ///< B, of a microbatch
  std::uint32_t sequence_length = 1;  ///< T
};

/// The order of samples: a pure function of (seed, step, lane, microbatch, row), whoever asks and
/// in whatever order. Sample i is tokens [i·T, i·T + T] of the training split: T + 1 of them,
/// neighbours share one. A row has the draw number n = ((step·L + lane)·M + microbatch)·B + row; it
/// is sample permutation_epoch(n mod samples) of epoch n / samples. So every epoch holds each
/// sample once, in another order, and a step may lie across the end of one. The tokens after the
/// last whole window are not used. Immutable. Threads: any.
class Sampler {
 public:
  /// `invalid` if the split has fewer tokens than one step needs, L·M·B·T + 1; the message says
  /// both numbers and what to change.
  static Result<Sampler> make(TokenStream tokens, const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  std::uint64_t samples() const { return samples_; }  ///< in an epoch
  std::uint64_t samples_per_step() const;
  /// step >= 0; lane < L, microbatch < M, row < B (checked).
  SampleId sample(std::uint64_t step, std::uint32_t lane, std::uint32_t microbatch,
                  std::uint32_t row) const;
  std::vector<SampleId> samples_of(std::uint64_t step, std::uint32_t lane,
                                   std::uint32_t microbatch) const;
  /// `failed`, naming the file, if a shard was cut short or cannot be read.
  Result<Batch> read(std::uint64_t step, std::uint32_t lane, std::uint32_t microbatch) const;

 private:
  Sampler(TokenStream tokens, const SamplerOptions& options, std::uint64_t samples);
  TokenStream tokens_;
  SamplerOptions options_;
  std::uint64_t samples_;
};

/// A fixed list of windows of the validation split, the same for everybody: at most batches_max ·
/// rows, spread evenly over the split, never overlapping in their targets. Immutable. Threads: any.
class ValidationSet {
 public:
  /// batches_max >= 1. `invalid` if the split has fewer than sequence_length + 1 tokens.
  static Result<ValidationSet> make(TokenStream tokens, std::uint32_t rows,
                                    std::uint32_t sequence_length, std::uint32_t batches_max);
  std::uint64_t windows() const { return windows_; }
  std::uint32_t batches() const;
  /// Batch `index` < batches(): rows of it, the last one perhaps fewer.
  Result<Batch> read(std::uint32_t index) const;

 private:
  ValidationSet() = default;
  TokenStream tokens_ = TokenStream::from_memory({});
  std::uint32_t rows_ = 1, sequence_length_ = 1;
  std::uint64_t windows_ = 0, available_ = 0;
};

}  // namespace teson::data
