#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "teson/job/model_shape.h"

namespace torch::nn {
class Module;
}

namespace teson::model {

/// The modules of a Llama 3 (Touvron et al., 2023; Dubey et al., 2024), nested and named as in
/// Hugging Face's checkpoints. One source holds them all, because torch/nn/module.h costs half a
/// minute.
class Llama {
 public:
  virtual ~Llama() = default;
  /// int64 [B, T] -> [B, T, D], after the final norm.
  virtual at::Tensor hidden(const at::Tensor& tokens) const = 0;
  /// [..., D] -> fp32 [..., vocabulary] (double for a model in double).
  virtual at::Tensor head(const at::Tensor& hidden) const = 0;
  /// In order of registration.
  virtual std::vector<std::pair<std::string, at::Tensor>> parameters() const = 0;
  virtual torch::nn::Module& module() = 0;
};

/// Builds the modules of a valid shape, without values. Throws c10::Error if there is no memory.
std::unique_ptr<Llama> make_llama(const job::ModelShape& shape, const at::TensorOptions& options);

}  // namespace teson::model
