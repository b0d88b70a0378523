#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "teson/base/error.h"
#include "teson/job/model_shape.h"

namespace torch::nn {
class Module;
}

namespace teson::model {

class Llama;

/// One parameter of a model. The tensor is the module's own leaf: changing its values or its .grad
/// changes the model.
struct NamedParameter {
  std::string name;  ///< as in Hugging Face's checkpoints: "model.layers.0.self_attn.q_proj.weight"
  at::Tensor tensor;
  bool decay = false;  ///< weight decay applies: matrices yes, norms no
};

struct ModelOptions {
  c10::Device device = c10::kCPU;  ///< kMeta: shapes only, no storage, any size at once
  /// Of the parameters and of the matrix products: kFloat, kBFloat16 or kDouble.
  at::ScalarType dtype = at::kFloat;
  std::uint64_t seed = 0;  ///< of the initial weights
};

/// A Llama as the trainer sees it: parameters by name, and the loss of a batch. Norms, rotary
/// embedding and cross-entropy are computed in fp32 whatever the dtype (in double for kDouble).
/// Threads: one at a time. Calls into libtorch may throw c10::Error (out of memory, a token outside
/// the vocabulary).
class LanguageModel {
 public:
  /// Builds the modules and draws the initial weights. A weight's initial value is a function of
  /// (seed, parameter's name, index) only: equal in every process, whatever the order of
  /// construction, the threads or the dtype (rounded to it). `invalid`: the shape or dtype is
  /// wrong. `failed`: no memory.
  static Result<std::unique_ptr<LanguageModel>> create(const job::ModelShape& shape,
                                                       const ModelOptions& options = {});
  ~LanguageModel();

  const job::ModelShape& shape() const { return shape_; }
  /// In order of registration: embedding, blocks from first to last, final norm, head unless tied.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

  /// tokens: int64 [B, T+1], 1 ≤ T ≤ context_length. Returns a scalar, fp32: the SUM over the B·T
  /// targets of the cross-entropy in nats of tokens[:, 1:] given what stands before. Divide by the
  /// global count of tokens in the optimizer step.
  at::Tensor loss_sum(const at::Tensor& tokens);
  /// tokens: int64 [B, T]. Returns fp32 [B, T, vocabulary].
  at::Tensor logits(const at::Tensor& tokens);
  /// tokens: int64 [B, T]. Returns fp32 [B, vocabulary]: only the last position, for generation.
  at::Tensor last_logits(const at::Tensor& tokens);

  /// The modules themselves, for capture and for hooks. Lives as long as this.
  torch::nn::Module& module();

 private:
  LanguageModel(const job::ModelShape& shape, std::unique_ptr<Llama> llama);

  job::ModelShape shape_;
  std::unique_ptr<Llama> llama_;
  std::vector<NamedParameter> parameters_;
};

}  // namespace teson::model
