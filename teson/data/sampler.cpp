#include "teson/data/sampler.h"

#include <algorithm>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"

namespace teson::data {
namespace {

/// Rows begin at the given tokens of the stream.
Result<Batch> read_rows(const TokenStream& tokens, std::span<const std::uint64_t> begins,
                        std::uint32_t sequence_length) {
  // Before the reading, so that a shard cut short is noticed at the next batch, wherever the cut
  // lies.
  TESON_TRY_VOID(tokens.check_sizes());
  Batch batch;
  batch.rows = begins.size();
  batch.width = sequence_length + std::size_t{1};
  batch.tokens.resize(batch.rows * batch.width);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    TESON_TRY_VOID(
        tokens.read(begins[row], std::span(batch.tokens).subspan(row * batch.width, batch.width)));
  }
  return batch;
}

}  // namespace

std::uint64_t sample_hash(std::span<const SampleId> ids) {
  return hash64(std::as_bytes(ids));
}

Result<Sampler> Sampler::make(TokenStream tokens, const SamplerOptions& options) {
  TESON_CHECK(options.lanes > 0 && options.microbatches > 0 && options.rows > 0 &&
              options.sequence_length > 0);
  const std::uint64_t samples =
      tokens.size() == 0 ? 0 : (tokens.size() - 1) / options.sequence_length;
  Sampler sampler(std::move(tokens), options, samples);
  const std::uint64_t needed = sampler.samples_per_step() * options.sequence_length + 1;
  if (samples < sampler.samples_per_step()) {
    return fail(ErrorKind::invalid,
                fmt::format("the training split has {} tokens, one step needs {} ({} lanes x {} "
                            "microbatches x {} sequences x "
                            "{} tokens, and one more); give it more text, or make the batch or the "
                            "sequences smaller",
                            sampler.tokens_.size(), needed, options.lanes, options.microbatches,
                            options.rows, options.sequence_length));
  }
  return sampler;
}

Sampler::Sampler(TokenStream tokens, const SamplerOptions& options, std::uint64_t samples)
    : tokens_(std::move(tokens)), options_(options), samples_(samples) {}

std::uint64_t Sampler::samples_per_step() const {
  return std::uint64_t{options_.lanes} * options_.microbatches * options_.rows;
}

SampleId Sampler::sample(std::uint64_t step, std::uint32_t lane, std::uint32_t microbatch,
                         std::uint32_t row) const {
  TESON_CHECK(lane < options_.lanes && microbatch < options_.microbatches && row < options_.rows,
              lane, microbatch, row);
  const std::uint64_t draw =
      ((step * options_.lanes + lane) * options_.microbatches + microbatch) * options_.rows + row;
  const std::uint64_t epoch = draw / samples_;
  return {.epoch = epoch, .index = Permutation(samples_, options_.seed, epoch)(draw % samples_)};
}

std::vector<SampleId> Sampler::samples_of(std::uint64_t step, std::uint32_t lane,
                                          std::uint32_t microbatch) const {
  std::vector<SampleId> ids;
  ids.reserve(options_.rows);
  for (std::uint32_t row = 0; row < options_.rows; ++row)
    ids.push_back(sample(step, lane, microbatch, row));
  return ids;
}

Result<Batch> Sampler::read(std::uint64_t step, std::uint32_t lane,
                            std::uint32_t microbatch) const {
  std::vector<SampleId> ids = samples_of(step, lane, microbatch);
  std::vector<std::uint64_t> begins;
  begins.reserve(ids.size());
  for (const SampleId& id : ids)
    begins.push_back(id.index * options_.sequence_length);
  TESON_TRY(Batch batch, read_rows(tokens_, begins, options_.sequence_length));
  batch.samples = std::move(ids);
  return batch;
}

Result<ValidationSet> ValidationSet::make(TokenStream tokens, std::uint32_t rows,
                                          std::uint32_t sequence_length,
                                          std::uint32_t batches_max) {
  TESON_CHECK(rows > 0 && sequence_length > 0 && batches_max > 0, rows, sequence_length,
              batches_max);
  ValidationSet set;
  set.available_ = tokens.size() == 0 ? 0 : (tokens.size() - 1) / sequence_length;
  if (set.available_ == 0) {
    return fail(ErrorKind::invalid,
                fmt::format("the validation split has {} tokens, one sequence needs {}; give the "
                            "corpus more text, raise "
                            "data.validation_fraction, or make the sequences shorter",
                            tokens.size(), sequence_length + std::uint64_t{1}));
  }
  set.windows_ = std::min<std::uint64_t>(set.available_, std::uint64_t{rows} * batches_max);
  set.tokens_ = std::move(tokens);
  set.rows_ = rows;
  set.sequence_length_ = sequence_length;
  return set;
}

std::uint32_t ValidationSet::batches() const {
  return static_cast<std::uint32_t>((windows_ + rows_ - 1) / rows_);
}

Result<Batch> ValidationSet::read(std::uint32_t index) const {
  TESON_CHECK(index < batches(), index, batches());
  std::vector<std::uint64_t> begins;
  for (std::uint64_t window = std::uint64_t{index} * rows_;
       window < windows_ && begins.size() < rows_; ++window) {
    begins.push_back(window * available_ / windows_ * sequence_length_);
  }
  return read_rows(tokens_, begins, sequence_length_);
}

}  // namespace teson::data
