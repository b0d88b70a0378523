#pragma once

#include <vector>

#include "teson/job/model_shape.h"

namespace teson::model {

/// Angles per position of the rotary embedding (Su et al., 2021): theta^(-2i/d) for i in [0, d/2),
/// d the size of a head, stretched as Llama 3.1 does where the shape says so (job/model_shape.h).
std::vector<double> rotary_frequencies(const job::ModelShape& shape);

}  // namespace teson::model
