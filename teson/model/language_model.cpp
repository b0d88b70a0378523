#include "teson/model/language_model.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"
#include "teson/model/llama.h"

namespace teson::model {
namespace {

constexpr double kInitialDeviation = 0.02;
constexpr std::int64_t kInitialBlock =
    64 * 1024;  // part of what the initial values are a function of

// Projections into the residual stream are drawn smaller, so that its variance does not grow with
// depth (Radford et al., 2019).
double initial_deviation(const job::ModelShape& shape, std::string_view name) {
  const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
  return residual ? kInitialDeviation / std::sqrt(2.0 * static_cast<double>(shape.layers))
                  : kInitialDeviation;
}

void draw_normal(std::span<float> values, std::uint64_t seed, std::string_view name,
                 double deviation) {
  const std::uint64_t name_key = hash64(name);
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = (count + kInitialBlock - 1) / kInitialBlock;
  at::parallel_for(0, blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      CounterRandom random({seed, name_key, static_cast<std::uint64_t>(block)});
      const std::int64_t end = std::min(count, (block + 1) * kInitialBlock);
      for (std::int64_t i = block * kInitialBlock; i < end; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<float>(deviation * random.normal());
    }
  });
}

void initialise(const job::ModelShape& shape, std::uint64_t seed,
                const std::vector<NamedParameter>& parameters) {
  at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.dim() == 1) {
      parameter.tensor.fill_(1.0);
      continue;
    }
    at::Tensor values = at::empty(parameter.tensor.sizes(), at::TensorOptions().dtype(at::kFloat));
    draw_normal({values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel())}, seed,
                parameter.name, initial_deviation(shape, parameter.name));
    parameter.tensor.copy_(values);
  }
}

void check_tokens(const at::Tensor& tokens, std::int64_t length_min, std::int64_t length_max) {
  TESON_CHECK(tokens.scalar_type() == at::kLong);
  TESON_CHECK(tokens.dim() == 2 && tokens.size(0) > 0, tokens.dim());
  TESON_CHECK(tokens.size(1) >= length_min && tokens.size(1) <= length_max, tokens.size(1),
              length_max);
}

}  // namespace

Result<std::unique_ptr<LanguageModel>> LanguageModel::create(const job::ModelShape& shape,
                                                             const ModelOptions& options) {
  TESON_TRY_VOID(job::validate(shape));
  if (options.dtype != at::kFloat && options.dtype != at::kBFloat16 && options.dtype != at::kDouble)
    return fail(ErrorKind::invalid,
                fmt::format("a model cannot be computed in {}; expected float, bfloat16 or double",
                            c10::toString(options.dtype)));
  try {
    auto llama = make_llama(shape, at::TensorOptions().device(options.device).dtype(options.dtype));
    std::unique_ptr<LanguageModel> model(new LanguageModel(shape, std::move(llama)));
    if (!options.device.is_meta()) initialise(shape, options.seed, model->parameters_);
    return model;
  } catch (const std::exception& error) {
    return fail(ErrorKind::failed,
                fmt::format("building a model of {} parameters in {} on {}: {}",
                            job::parameter_count(shape), c10::toString(options.dtype),
                            options.device.str(), error.what()));
  }
}

LanguageModel::LanguageModel(const job::ModelShape& shape, std::unique_ptr<Llama> llama)
    : shape_(shape), llama_(std::move(llama)) {
  for (auto& [name, tensor] : llama_->parameters())
    parameters_.push_back({name, tensor, tensor.dim() >= 2});
}

LanguageModel::~LanguageModel() = default;

at::Tensor LanguageModel::loss_sum(const at::Tensor& tokens) {
  check_tokens(tokens, 2, shape_.context_length + 1);
  const std::int64_t length = tokens.size(1) - 1;
  const at::Tensor logits = llama_->head(llama_->hidden(tokens.narrow(1, 0, length)));
  return at::cross_entropy_loss(logits.view({-1, shape_.vocabulary}),
                                tokens.narrow(1, 1, length).reshape({-1}), {}, at::Reduction::Sum);
}

at::Tensor LanguageModel::logits(const at::Tensor& tokens) {
  check_tokens(tokens, 1, shape_.context_length);
  return llama_->head(llama_->hidden(tokens));
}

at::Tensor LanguageModel::last_logits(const at::Tensor& tokens) {
  check_tokens(tokens, 1, shape_.context_length);
  return llama_->head(llama_->hidden(tokens).select(1, tokens.size(1) - 1));
}

torch::nn::Module& LanguageModel::module() {
  return llama_->module();
}

}  // namespace teson::model
