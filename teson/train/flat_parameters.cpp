#include "teson/train/flat_parameters.h"

#include <cstring>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/model/language_model.h"

namespace teson::train {
namespace {

at::Tensor view_of(const at::Tensor& flat, const FlatEntry& entry) {
  return flat.narrow(0, entry.offset, entry.elements).view(entry.shape);
}

}  // namespace

Result<std::unique_ptr<FlatParameters>> FlatParameters::create(model::LanguageModel& model,
                                                               at::ScalarType compute) {
  if (compute != at::kFloat && compute != at::kBFloat16)
    return fail(ErrorKind::invalid,
                fmt::format("compute in {} is not available; expected float or bfloat16",
                            c10::toString(compute)));
  std::unique_ptr<FlatParameters> flat(new FlatParameters);
  flat->compute_ = compute;
  for (const model::NamedParameter& parameter : model.parameters()) {
    if (!parameter.tensor.device().is_cpu() || parameter.tensor.scalar_type() != at::kFloat)
      return fail(
          ErrorKind::invalid,
          fmt::format("parameter {} is {} on {}; expected float on cpu: create the model so",
                      parameter.name, c10::toString(parameter.tensor.scalar_type()),
                      parameter.tensor.device().str()));
    flat->layout_.add(parameter.name, parameter.tensor.sizes().vec(), parameter.decay);
    flat->parameters_.push_back(parameter.tensor);
  }
  at::NoGradGuard no_grad;
  try {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
    flat->master_ = at::zeros({flat->layout_.elements}, options);
    if (compute != at::kFloat)
      flat->compute_copy_ = at::zeros({flat->layout_.elements}, options.dtype(compute));
    const at::Tensor& shown = compute == at::kFloat ? flat->master_ : flat->compute_copy_;
    for (std::size_t i = 0; i < flat->parameters_.size(); ++i) {
      view_of(flat->master_, flat->layout_.entries[i]).copy_(flat->parameters_[i]);
      flat->parameters_[i].mutable_grad().reset();
      flat->parameters_[i].set_data(view_of(shown, flat->layout_.entries[i]));
    }
  } catch (const std::exception& error) {
    return fail(ErrorKind::failed, fmt::format("moving {} parameters into flat storage: {}",
                                               flat->layout_.elements, error.what()));
  }
  flat->weights_ = flat->master_.mutable_data_ptr<float>();
  flat->publish();
  return flat;
}

void FlatParameters::publish() {
  if (!compute_copy_.defined()) return;
  at::NoGradGuard no_grad;
  compute_copy_.copy_(master_);
}

void FlatParameters::bind_gradients(float* buffer) {
  TESON_CHECK(buffer != nullptr);
  buffer_ = buffer;
  gradients_.clear();
  const at::Tensor flat =
      at::from_blob(buffer, {layout_.elements}, at::TensorOptions().dtype(at::kFloat));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    gradients_.push_back(view_of(flat, layout_.entries[i]));
    if (compute_ == at::kFloat) parameters_[i].mutable_grad() = gradients_.back();
  }
}

void FlatParameters::zero_gradients() {
  TESON_CHECK(buffer_ != nullptr);
  std::memset(buffer_, 0, static_cast<std::size_t>(layout_.elements) * sizeof(float));
}

void FlatParameters::collect_gradients() {
  TESON_CHECK(buffer_ != nullptr);
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (compute_ == at::kFloat) {
      // Autograd adds in place to a gradient that is there; were it ever to replace one, the buffer
      // would stay empty unnoticed.
      TESON_CHECK(gradient.defined() && gradient.const_data_ptr() == gradients_[i].const_data_ptr(),
                  layout_.entries[i].name);
    } else if (gradient.defined()) {
      gradients_[i].add_(gradient);
      gradient.reset();
    }
  }
}

}  // namespace teson::train
