#include "teson/model/llama.h"

#include <cmath>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "teson/model/rotary.h"

namespace teson::model {
namespace {

// y = x Wᵀ, weight [out, in].
struct Linear : torch::nn::Module {
  Linear(std::int64_t in, std::int64_t out, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight;
};

// x / sqrt(mean(x²) + epsilon) · weight over the last axis (Zhang and Sennrich, 2019); the mean is
// taken in fp32.
struct RmsNorm : torch::nn::Module {
  RmsNorm(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight;
  double epsilon;
};

struct Embedding : torch::nn::Module {
  Embedding(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& tokens) const;
  at::Tensor weight;
};

// Cosines and sines of the rotary embedding, [T, head size]; the second half of a row repeats the
// first.
struct Rotation {
  at::Tensor cosine, sine;
};

// Causal attention with `heads` queries sharing `kv_heads` keys and values (Ainslie et al., 2023).
struct Attention : torch::nn::Module {
  Attention(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x,
                     const Rotation& rotation) const;  // [B, T, D] -> [B, T, D]
  job::ModelShape shape;
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
};

// down(silu(gate x) · up x) (Shazeer, 2020).
struct FeedForward : torch::nn::Module {
  FeedForward(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;
  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

struct Block : torch::nn::Module {
  Block(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x, const Rotation& rotation) const;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<FeedForward> mlp;
  std::shared_ptr<RmsNorm> input_layernorm, post_attention_layernorm;
};

// Everything but the head.
struct LlamaBody : torch::nn::Module {
  LlamaBody(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& tokens) const;  // int64 [B, T] -> [B, T, D]
  std::shared_ptr<Embedding> embed_tokens;
  std::shared_ptr<torch::nn::Module> layers;
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<RmsNorm> norm;
  Rotation rotation;  // of every position; not a parameter
};

struct LlamaModule : torch::nn::Module {
  LlamaModule(const job::ModelShape& shape, const at::TensorOptions& options);
  at::Tensor head(const at::Tensor& hidden) const;
  std::shared_ptr<LlamaBody> model;
  std::shared_ptr<Linear> lm_head;  // null when tied
};

// What norms, rotation and loss are computed in.
at::ScalarType precise(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor leaf(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty(sizes, options).set_requires_grad(true);
}

Rotation make_rotation(const job::ModelShape& shape, const at::TensorOptions& options) {
  const std::int64_t positions = shape.context_length, size = shape.head_size();
  const at::ScalarType dtype = precise(at::typeMetaToScalarType(options.dtype()));
  if (options.device().is_meta()) {
    const at::Tensor nothing = at::empty({positions, size}, options.dtype(dtype));
    return {nothing, nothing};
  }
  const at::TensorOptions plain = at::TensorOptions().dtype(at::kDouble);
  Rotation rotation{at::empty({positions, size}, plain), at::empty({positions, size}, plain)};
  const std::vector<double> frequencies = rotary_frequencies(shape);
  auto* cosine = rotation.cosine.mutable_data_ptr<double>();
  auto* sine = rotation.sine.mutable_data_ptr<double>();
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < size; ++i) {
      const double angle =
          static_cast<double>(position) * frequencies[static_cast<std::size_t>(i % (size / 2))];
      cosine[position * size + i] = std::cos(angle);
      sine[position * size + i] = std::sin(angle);
    }
  }
  return {rotation.cosine.to(options.device(), dtype), rotation.sine.to(options.device(), dtype)};
}

// x: [B, H, T, size]; pairs are (i, i + size / 2), as in Hugging Face's order of weights.
at::Tensor rotate(const at::Tensor& x, const Rotation& rotation) {
  const at::Tensor wide = x.to(rotation.cosine.scalar_type());
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor turned =
      at::cat({wide.narrow(-1, half, half).neg(), wide.narrow(-1, 0, half)}, -1);
  return (wide * rotation.cosine + turned * rotation.sine).to(x.scalar_type());
}

Linear::Linear(std::int64_t in, std::int64_t out, const at::TensorOptions& options)
    : weight(register_parameter("weight", leaf({out, in}, options))) {}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return at::linear(x, weight);
}

RmsNorm::RmsNorm(const job::ModelShape& shape, const at::TensorOptions& options)
    : weight(register_parameter("weight", leaf({shape.dimension}, options))),
      epsilon(shape.norm_epsilon) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const at::Tensor wide = x.to(precise(x.scalar_type()));
  const at::Tensor scale = at::rsqrt(at::mean(wide * wide, {-1}, true) + epsilon);
  return (wide * scale).to(x.scalar_type()) * weight;
}

Embedding::Embedding(const job::ModelShape& shape, const at::TensorOptions& options)
    : weight(register_parameter("weight", leaf({shape.vocabulary, shape.dimension}, options))) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  return at::embedding(weight, tokens);
}

Attention::Attention(const job::ModelShape& model_shape, const at::TensorOptions& options)
    : shape(model_shape) {
  const std::int64_t width = shape.dimension, kv_width = shape.kv_heads * shape.head_size();
  q_proj = register_module("q_proj", std::make_shared<Linear>(width, width, options));
  k_proj = register_module("k_proj", std::make_shared<Linear>(width, kv_width, options));
  v_proj = register_module("v_proj", std::make_shared<Linear>(width, kv_width, options));
  o_proj = register_module("o_proj", std::make_shared<Linear>(width, width, options));
}

at::Tensor Attention::forward(const at::Tensor& x, const Rotation& rotation) const {
  const std::int64_t batch = x.size(0), length = x.size(1), size = shape.head_size();
  const auto split = [&](const at::Tensor& joined, std::int64_t heads) {
    return joined.view({batch, length, heads, size}).transpose(1, 2);
  };
  // Keys and values are repeated here because the CPU's flash kernel takes equal numbers of heads
  // only.
  const auto repeat = [&](const at::Tensor& shared) {
    if (shape.kv_heads == shape.heads) return shared;
    const std::int64_t group = shape.heads / shape.kv_heads;
    return shared.unsqueeze(2)
        .expand({batch, shape.kv_heads, group, length, size})
        .reshape({batch, shape.heads, length, size});
  };
  const at::Tensor query = rotate(split(q_proj->forward(x), shape.heads), rotation);
  const at::Tensor key = repeat(rotate(split(k_proj->forward(x), shape.kv_heads), rotation));
  const at::Tensor value = repeat(split(v_proj->forward(x), shape.kv_heads));
  const at::Tensor mixed =
      at::scaled_dot_product_attention(query, key, value, std::nullopt, 0.0, /*is_causal=*/true);
  return o_proj->forward(mixed.transpose(1, 2).reshape({batch, length, shape.dimension}));
}

FeedForward::FeedForward(const job::ModelShape& shape, const at::TensorOptions& options) {
  gate_proj = register_module(
      "gate_proj", std::make_shared<Linear>(shape.dimension, shape.feed_forward, options));
  up_proj = register_module("up_proj",
                            std::make_shared<Linear>(shape.dimension, shape.feed_forward, options));
  down_proj = register_module(
      "down_proj", std::make_shared<Linear>(shape.feed_forward, shape.dimension, options));
}

at::Tensor FeedForward::forward(const at::Tensor& x) const {
  return down_proj->forward(at::silu(gate_proj->forward(x)) * up_proj->forward(x));
}

Block::Block(const job::ModelShape& shape, const at::TensorOptions& options) {
  self_attn = register_module("self_attn", std::make_shared<Attention>(shape, options));
  mlp = register_module("mlp", std::make_shared<FeedForward>(shape, options));
  input_layernorm = register_module("input_layernorm", std::make_shared<RmsNorm>(shape, options));
  post_attention_layernorm =
      register_module("post_attention_layernorm", std::make_shared<RmsNorm>(shape, options));
}

at::Tensor Block::forward(const at::Tensor& x, const Rotation& rotation) const {
  const at::Tensor attended = x + self_attn->forward(input_layernorm->forward(x), rotation);
  return attended + mlp->forward(post_attention_layernorm->forward(attended));
}

LlamaBody::LlamaBody(const job::ModelShape& shape, const at::TensorOptions& options) {
  embed_tokens = register_module("embed_tokens", std::make_shared<Embedding>(shape, options));
  layers = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    blocks.push_back(
        layers->register_module(std::to_string(layer), std::make_shared<Block>(shape, options)));
  }
  norm = register_module("norm", std::make_shared<RmsNorm>(shape, options));
  rotation = make_rotation(shape, options);
}

at::Tensor LlamaBody::forward(const at::Tensor& tokens) const {
  const std::int64_t length = tokens.size(1);
  const Rotation here{rotation.cosine.narrow(0, 0, length), rotation.sine.narrow(0, 0, length)};
  at::Tensor x = embed_tokens->forward(tokens);
  for (const auto& block : blocks)
    x = block->forward(x, here);
  return norm->forward(x);
}

LlamaModule::LlamaModule(const job::ModelShape& shape, const at::TensorOptions& options) {
  model = register_module("model", std::make_shared<LlamaBody>(shape, options));
  if (!shape.tied_head) {
    lm_head = register_module("lm_head",
                              std::make_shared<Linear>(shape.dimension, shape.vocabulary, options));
  }
}

at::Tensor LlamaModule::head(const at::Tensor& hidden) const {
  const at::Tensor& weight = lm_head ? lm_head->weight : model->embed_tokens->weight;
  return at::linear(hidden, weight).to(precise(hidden.scalar_type()));
}

class LlamaImpl final : public Llama {
 public:
  LlamaImpl(const job::ModelShape& shape, const at::TensorOptions& options)
      : llama_(std::make_shared<LlamaModule>(shape, options)) {}
  at::Tensor hidden(const at::Tensor& tokens) const override {
    return llama_->model->forward(tokens);
  }
  at::Tensor head(const at::Tensor& hidden) const override { return llama_->head(hidden); }
  std::vector<std::pair<std::string, at::Tensor>> parameters() const override {
    return llama_->named_parameters().pairs();
  }
  torch::nn::Module& module() override { return *llama_; }

 private:
  std::shared_ptr<LlamaModule> llama_;
};

}  // namespace

std::unique_ptr<Llama> make_llama(const job::ModelShape& shape, const at::TensorOptions& options) {
  return std::make_unique<LlamaImpl>(shape, options);
}

}  // namespace teson::model
