#pragma once

#include <cstdint>

#include "teson/base/error.h"
#include "teson/job/config.h"
#include "teson/job/model_shape.h"

namespace teson::train {

/// The shape that [model] and [batch] ask for, with the vocabulary of the tokenizer at hand.
/// `invalid` names the field.
Result<job::ModelShape> model_shape(const job::Config& config, std::uint64_t vocabulary);

}  // namespace teson::train
