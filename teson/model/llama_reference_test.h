#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "teson/job/model_shape.h"

namespace teson::model {

using Row = std::vector<std::int64_t>;  ///< T + 1 tokens
using Named = std::map<std::string, std::vector<double>>;

/// The same model written a second time, for tests: float64, plain loops, a backward pass derived
/// by hand, no libtorch. Parameters by the names of Hugging Face's checkpoints, row-major.
struct LlamaReference {
  job::ModelShape shape;
  Named weights;
  Named gradients;  ///< of loss_sum, filled by backward

  double loss_sum(const std::vector<Row>& rows) const;
  double backward(const std::vector<Row>& rows);
};

/// The rotary frequencies in the form of Hugging Face's `_compute_llama3_parameters`.
std::vector<double> reference_frequencies(const job::ModelShape& shape);

}  // namespace teson::model
