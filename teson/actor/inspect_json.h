#pragma once

#include <string>

#include "teson/actor/inspect.h"

namespace teson::actor {

/// The snapshot as one JSON object without line ends: docs/formats/admin.md has its fields.
std::string to_json(const SystemSnapshot& snapshot);

}  // namespace teson::actor
