#pragma once

#include <span>
#include <string>
#include <string_view>

#include "teson/base/error.h"
#include "teson/job/model_shape.h"

namespace teson::job {

struct Preset {
  std::string_view name;     ///< as written in a config: "llama3-8b"
  std::string_view summary;  ///< one line for people
  ModelShape shape;
};

/// All presets, smallest first: `tiny` and `small-3m` for CPUs, then Meta's published Llama models.
std::span<const Preset> presets();

/// The shape of that name, or `invalid` with the names that exist.
Result<ModelShape> preset_shape(std::string_view name);

}  // namespace teson::job
