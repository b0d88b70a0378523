#include "teson/model/llama_reference_test.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "teson/base/random.h"

namespace teson::model {
namespace {

using Values = std::vector<double>;

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

Values linear(const Values& x, const Values& weight, std::int64_t in, std::int64_t out) {
  const auto rows = static_cast<std::int64_t>(x.size()) / in;
  Values y(index(rows * out), 0.0);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i)
        y[index(t * out + o)] += x[index(t * in + i)] * weight[index(o * in + i)];
  return y;
}

// Adds to the gradient of the weight, returns that of x.
Values linear_backward(const Values& dy, const Values& x, const Values& weight, Values& dweight,
                       std::int64_t in, std::int64_t out) {
  const auto rows = static_cast<std::int64_t>(x.size()) / in;
  Values dx(x.size(), 0.0);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) {
        dx[index(t * in + i)] += dy[index(t * out + o)] * weight[index(o * in + i)];
        dweight[index(o * in + i)] += dy[index(t * out + o)] * x[index(t * in + i)];
      }
    }
  }
  return dx;
}

double inverse_root(const double* x, std::int64_t width, double epsilon) {
  double square = 0;
  for (std::int64_t i = 0; i < width; ++i)
    square += x[i] * x[i];
  return 1.0 / std::sqrt(square / static_cast<double>(width) + epsilon);
}

Values norm(const Values& x, const Values& weight, double epsilon) {
  const auto width = static_cast<std::int64_t>(weight.size());
  Values y(x.size());
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / width; ++t) {
    const double root = inverse_root(&x[index(t * width)], width, epsilon);
    for (std::int64_t i = 0; i < width; ++i)
      y[index(t * width + i)] = x[index(t * width + i)] * root * weight[index(i)];
  }
  return y;
}

// With r = (mean x² + e)^(-1/2): dx = r·w·dy - x·r³/D·Σ(dy·w·x).
Values norm_backward(const Values& dy, const Values& x, const Values& weight, Values& dweight,
                     double epsilon) {
  const auto width = static_cast<std::int64_t>(weight.size());
  Values dx(x.size());
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / width; ++t) {
    const double root = inverse_root(&x[index(t * width)], width, epsilon);
    double projected = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const std::size_t at = index(t * width + i);
      projected += dy[at] * weight[index(i)] * x[at];
      dweight[index(i)] += dy[at] * x[at] * root;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const std::size_t at = index(t * width + i);
      dx[at] = root * weight[index(i)] * dy[at] -
               x[at] * root * root * root * projected / static_cast<double>(width);
    }
  }
  return dx;
}

// Turns each pair (i, i + size/2) of every head by position · frequency; backward turns by the
// opposite angle.
void rotate(Values& x, std::int64_t heads, const Values& frequencies, double sign) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const std::int64_t width = heads * 2 * half;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / width; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < half; ++i) {
        double& real = x[index(t * width + h * 2 * half + i)];
        double& imaginary = x[index(t * width + h * 2 * half + half + i)];
        const double angle = sign * static_cast<double>(t) * frequencies[index(i)];
        const double turned = real * std::cos(angle) - imaginary * std::sin(angle);
        imaginary = real * std::sin(angle) + imaginary * std::cos(angle);
        real = turned;
      }
    }
  }
}

struct AttentionTrace {
  Values query, key, value, chances;  // chances: [heads, T, T]
};

double dot(const double* a, const double* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i)
    sum += a[i] * b[i];
  return sum;
}

Values attention(const job::ModelShape& shape, AttentionTrace& trace) {
  const std::int64_t size = shape.head_size(), width = shape.dimension,
                     kv_width = shape.kv_heads * size;
  const auto length = static_cast<std::int64_t>(trace.query.size()) / width;
  Values out(trace.query.size(), 0.0);
  trace.chances.assign(index(shape.heads * length * length), 0.0);
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const std::int64_t from = h / (shape.heads / shape.kv_heads) * size;
    for (std::int64_t t = 0; t < length; ++t) {
      double* chance = &trace.chances[index((h * length + t) * length)];
      double total = 0;
      for (std::int64_t s = 0; s <= t; ++s) {
        chance[s] = std::exp(dot(&trace.query[index(t * width + h * size)],
                                 &trace.key[index(s * kv_width + from)], size) /
                             std::sqrt(static_cast<double>(size)));
        total += chance[s];
      }
      for (std::int64_t s = 0; s <= t; ++s) {
        chance[s] /= total;
        for (std::int64_t i = 0; i < size; ++i)
          out[index(t * width + h * size + i)] +=
              chance[s] * trace.value[index(s * kv_width + from + i)];
      }
    }
  }
  return out;
}

AttentionTrace attention_backward(const job::ModelShape& shape, const AttentionTrace& trace,
                                  const Values& dout) {
  const std::int64_t size = shape.head_size(), width = shape.dimension,
                     kv_width = shape.kv_heads * size;
  const auto length = static_cast<std::int64_t>(trace.query.size()) / width;
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  AttentionTrace d{Values(trace.query.size(), 0.0),
                   Values(trace.key.size(), 0.0),
                   Values(trace.value.size(), 0.0),
                   {}};
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const std::int64_t from = h / (shape.heads / shape.kv_heads) * size;
    for (std::int64_t t = 0; t < length; ++t) {
      const double* chance = &trace.chances[index((h * length + t) * length)];
      const double* up = &dout[index(t * width + h * size)];
      double mean = 0;
      for (std::int64_t s = 0; s <= t; ++s)
        mean += chance[s] * dot(up, &trace.value[index(s * kv_width + from)], size);
      for (std::int64_t s = 0; s <= t; ++s) {
        const double dscore =
            chance[s] * (dot(up, &trace.value[index(s * kv_width + from)], size) - mean) * scale;
        for (std::int64_t i = 0; i < size; ++i) {
          const std::size_t q = index(t * width + h * size + i), k = index(s * kv_width + from + i);
          d.value[k] += chance[s] * up[i];
          d.query[q] += dscore * trace.key[k];
          d.key[k] += dscore * trace.query[q];
        }
      }
    }
  }
  return d;
}

struct BlockTrace {
  Values in, normed, mixed, middle, normed2, gate, up, product;
  AttentionTrace attention;
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

void add(Values& to, const Values& from) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] += from[i];
}

Values block(const job::ModelShape& shape, const Named& weights, const std::string& name,
             const Values& x, BlockTrace& trace) {
  const auto w = [&](const char* part) -> const Values& {
    return weights.at(name + part + ".weight");
  };
  const std::int64_t width = shape.dimension, kv_width = shape.kv_heads * shape.head_size(),
                     inner = shape.feed_forward;
  const Values frequencies = reference_frequencies(shape);
  trace.in = x;
  trace.normed = norm(x, w("input_layernorm"), shape.norm_epsilon);
  trace.attention.query = linear(trace.normed, w("self_attn.q_proj"), width, width);
  trace.attention.key = linear(trace.normed, w("self_attn.k_proj"), width, kv_width);
  trace.attention.value = linear(trace.normed, w("self_attn.v_proj"), width, kv_width);
  rotate(trace.attention.query, shape.heads, frequencies, 1.0);
  rotate(trace.attention.key, shape.kv_heads, frequencies, 1.0);
  trace.mixed = attention(shape, trace.attention);
  trace.middle = linear(trace.mixed, w("self_attn.o_proj"), width, width);
  add(trace.middle, x);
  trace.normed2 = norm(trace.middle, w("post_attention_layernorm"), shape.norm_epsilon);
  trace.gate = linear(trace.normed2, w("mlp.gate_proj"), width, inner);
  trace.up = linear(trace.normed2, w("mlp.up_proj"), width, inner);
  trace.product = trace.gate;
  for (std::size_t i = 0; i < trace.product.size(); ++i)
    trace.product[i] *= sigmoid(trace.gate[i]) * trace.up[i];
  Values out = linear(trace.product, w("mlp.down_proj"), inner, width);
  add(out, trace.middle);
  return out;
}

Values block_backward(const job::ModelShape& shape, const Named& weights, Named& gradients,
                      const std::string& name, const BlockTrace& trace, const Values& dout) {
  const auto w = [&](const char* part) -> const Values& {
    return weights.at(name + part + ".weight");
  };
  const auto g = [&](const char* part) -> Values& { return gradients.at(name + part + ".weight"); };
  const std::int64_t width = shape.dimension, kv_width = shape.kv_heads * shape.head_size(),
                     inner = shape.feed_forward;
  const auto back = [&](const char* part, const Values& dy, const Values& x, std::int64_t in,
                        std::int64_t out) {
    return linear_backward(dy, x, w(part), g(part), in, out);
  };
  const Values dproduct = back("mlp.down_proj", dout, trace.product, inner, width);
  Values dgate(dproduct.size()), dup(dproduct.size());
  for (std::size_t i = 0; i < dproduct.size(); ++i) {
    const double s = sigmoid(trace.gate[i]);
    dup[i] = dproduct[i] * trace.gate[i] * s;
    dgate[i] = dproduct[i] * trace.up[i] * s * (1.0 + trace.gate[i] * (1.0 - s));
  }
  Values dnormed2 = back("mlp.gate_proj", dgate, trace.normed2, width, inner);
  add(dnormed2, back("mlp.up_proj", dup, trace.normed2, width, inner));
  Values dmiddle = norm_backward(dnormed2, trace.middle, w("post_attention_layernorm"),
                                 g("post_attention_layernorm"), shape.norm_epsilon);
  add(dmiddle, dout);
  AttentionTrace d = attention_backward(
      shape, trace.attention, back("self_attn.o_proj", dmiddle, trace.mixed, width, width));
  rotate(d.query, shape.heads, reference_frequencies(shape), -1.0);
  rotate(d.key, shape.kv_heads, reference_frequencies(shape), -1.0);
  Values dnormed = back("self_attn.q_proj", d.query, trace.normed, width, width);
  add(dnormed, back("self_attn.k_proj", d.key, trace.normed, width, kv_width));
  add(dnormed, back("self_attn.v_proj", d.value, trace.normed, width, kv_width));
  Values din = norm_backward(dnormed, trace.in, w("input_layernorm"), g("input_layernorm"),
                             shape.norm_epsilon);
  add(din, dmiddle);
  return din;
}

std::string head_name(const job::ModelShape& shape) {
  return shape.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
}

// Forward over one row; with `gradients`, backward too.
double run_row(const job::ModelShape& shape, const Named& weights, const Row& row,
               Named* gradients) {
  const std::int64_t width = shape.dimension, length = static_cast<std::int64_t>(row.size()) - 1;
  const Values& table = weights.at("model.embed_tokens.weight");
  Values x;
  for (std::int64_t t = 0; t < length; ++t)
    for (std::int64_t i = 0; i < width; ++i)
      x.push_back(table[index(row[index(t)] * width + i)]);
  std::vector<BlockTrace> traces(index(shape.layers));
  const auto name = [](std::int64_t layer) {
    return "model.layers." + std::to_string(layer) + ".";
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    x = block(shape, weights, name(layer), x, traces[index(layer)]);
  const Values last = norm(x, weights.at("model.norm.weight"), shape.norm_epsilon);
  Values dlogits = linear(last, weights.at(head_name(shape)), width, shape.vocabulary);
  double loss = 0;
  for (std::int64_t t = 0; t < length; ++t) {
    double* logits = &dlogits[index(t * shape.vocabulary)];
    double total = 0;
    for (std::int64_t v = 0; v < shape.vocabulary; ++v)
      total += std::exp(logits[v]);
    loss += std::log(total) - logits[row[index(t + 1)]];
    for (std::int64_t v = 0; v < shape.vocabulary; ++v)
      logits[v] = std::exp(logits[v]) / total - (v == row[index(t + 1)] ? 1.0 : 0.0);
  }
  if (gradients == nullptr) return loss;

  const Values dlast = linear_backward(dlogits, last, weights.at(head_name(shape)),
                                       gradients->at(head_name(shape)), width, shape.vocabulary);
  Values dx = norm_backward(dlast, x, weights.at("model.norm.weight"),
                            gradients->at("model.norm.weight"), shape.norm_epsilon);
  for (std::int64_t layer = shape.layers - 1; layer >= 0; --layer)
    dx = block_backward(shape, weights, *gradients, name(layer), traces[index(layer)], dx);
  for (std::int64_t t = 0; t < length; ++t)
    for (std::int64_t i = 0; i < width; ++i)
      gradients->at("model.embed_tokens.weight")[index(row[index(t)] * width + i)] +=
          dx[index(t * width + i)];
  return loss;
}

Values random_values(std::int64_t count, std::uint64_t key, double mean) {
  CounterRandom random({key, 77});
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(mean + 0.3 * random.normal());
  return values;
}

LlamaReference small_reference(bool tied) {
  LlamaReference reference;
  job::ModelShape& shape = reference.shape;
  shape.vocabulary = 7, shape.dimension = 8, shape.layers = 2, shape.heads = 4, shape.kv_heads = 2;
  shape.feed_forward = 6, shape.rope_theta = 100, shape.tied_head = tied;
  shape.rope_scaling = job::RopeScaling{4, 1, 3, 16};
  std::uint64_t key = 0;
  const auto put = [&](const std::string& name, std::int64_t count) {
    reference.weights[name + ".weight"] = random_values(count, ++key, count == 8 ? 1.0 : 0.0);
  };
  put("model.embed_tokens", 7 * 8);
  put("model.norm", 8);
  if (!tied) put("lm_head", 7 * 8);
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* part : {"self_attn.q_proj", "self_attn.o_proj"})
      put(std::string(layer) + part, 8 * 8);
    for (const char* part : {"self_attn.k_proj", "self_attn.v_proj"})
      put(std::string(layer) + part, 4 * 8);
    for (const char* part : {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
      put(std::string(layer) + part, 6 * 8);
    for (const char* part : {"input_layernorm", "post_attention_layernorm"})
      put(std::string(layer) + part, 8);
  }
  return reference;
}

// The reference's own backward against central differences of its forward.
TEST(LlamaReference, gradients_are_the_slopes_of_the_loss) {
  for (const bool tied : {false, true}) {
    LlamaReference reference = small_reference(tied);
    const std::vector<Row> rows = {{0, 3, 6, 1, 1, 5}, {2, 2, 4, 0, 6, 3}};
    EXPECT_DOUBLE_EQ(reference.backward(rows), reference.loss_sum(rows));
    for (auto& [name, values] : reference.weights) {
      for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 5) {
        const double kept = values[i], by = 1e-5;
        values[i] = kept + by;
        const double above = reference.loss_sum(rows);
        values[i] = kept - by;
        const double below = reference.loss_sum(rows);
        values[i] = kept;
        const double slope = (above - below) / (2 * by);
        EXPECT_NEAR(reference.gradients.at(name)[i], slope, 1e-7 * std::max(1.0, std::abs(slope)))
            << name << " " << i;
      }
    }
  }
}

}  // namespace

std::vector<double> reference_frequencies(const job::ModelShape& shape) {
  const auto size = shape.head_size();
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < size; i += 2) {
    const double part = static_cast<double>(i) / static_cast<double>(size);
    const double inverse = 1.0 / std::pow(shape.rope_theta, part);
    double value = inverse;
    if (shape.rope_scaling) {
      const job::RopeScaling& scaling = *shape.rope_scaling;
      const auto old = static_cast<double>(scaling.original_context);
      const double wavelength = 2 * std::numbers::pi / inverse;
      const bool is_long = wavelength > old / scaling.low_freq_factor;
      const bool is_short = wavelength < old / scaling.high_freq_factor;
      if (is_long) value = inverse / scaling.factor;
      const double smooth = (old / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      if (!is_long && !is_short) value = (1 - smooth) * value / scaling.factor + smooth * value;
    }
    frequencies.push_back(value);
  }
  return frequencies;
}

double LlamaReference::loss_sum(const std::vector<Row>& rows) const {
  double loss = 0;
  for (const Row& row : rows)
    loss += run_row(shape, weights, row, nullptr);
  return loss;
}

double LlamaReference::backward(const std::vector<Row>& rows) {
  for (const auto& [name, values] : weights)
    gradients[name].assign(values.size(), 0.0);
  double loss = 0;
  for (const Row& row : rows)
    loss += run_row(shape, weights, row, &gradients);
  return loss;
}

}  // namespace teson::model
