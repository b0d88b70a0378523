#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "teson/base/error.h"
#include "teson/train/flat_layout.h"

namespace teson::model {
class LanguageModel;
}

namespace teson::train {

/// A model's parameters moved into one flat fp32 storage (the master weights), and their gradients
/// into flat fp32 buffers of the same layout, so that reduction, optimizer, checkpoint and healing
/// see one array each.
///
/// Compute in fp32: the module's parameters are views of the master weights, and backward adds
/// straight into the bound buffer. Compute in bf16: the module's parameters are views of a flat
/// bf16 copy, refreshed by publish(); backward leaves bf16 gradients that collect_gradients() adds
/// into the bound buffer.
///
/// A lane:
///   flat.bind_gradients(buffer);
///   flat.zero_gradients();
///   for each microbatch: model.loss_sum(tokens).backward(), then flat.collect_gradients();
///
/// Threads: one at a time. The model must outlive this and stay on the CPU.
class FlatParameters {
 public:
  /// Takes over the parameters of a model created in kFloat; its values become the master weights.
  /// `compute`: kFloat or kBFloat16.
  static Result<std::unique_ptr<FlatParameters>> create(model::LanguageModel& model,
                                                        at::ScalarType compute = at::kFloat);

  const FlatLayout& layout() const { return layout_; }
  std::int64_t elements() const { return layout_.elements; }
  /// The master weights, elements() floats, 64-byte aligned. After changing them call publish().
  float* weights() { return weights_; }
  const float* weights() const { return weights_; }

  /// Shows changed master weights to the module. Nothing to do in fp32; one rounding pass in bf16.
  void publish();

  /// From now on gradients go into `buffer`: elements() floats of the caller's, which must live
  /// until another is bound or this ends. Its contents stay: backward adds to them.
  void bind_gradients(float* buffer);
  /// Sets the bound buffer to zero, gaps included.
  void zero_gradients();
  /// Call after every backward(). Also makes sure that the gradients are where they belong.
  void collect_gradients();

 private:
  FlatParameters() = default;

  FlatLayout layout_;
  at::ScalarType compute_ = at::kFloat;
  at::Tensor master_;                   // fp32, flat
  at::Tensor compute_copy_;             // bf16, flat; undefined in fp32
  std::vector<at::Tensor> parameters_;  // the module's leaves, in the order of layout_.entries
  std::vector<at::Tensor> gradients_;   // views of the bound buffer
  float* weights_ = nullptr;
  float* buffer_ = nullptr;
};

}  // namespace teson::train
