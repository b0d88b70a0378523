#pragma once

#include "teson/base/error.h"

namespace teson {

/// Writes out what standard output still holds. `failed` if any of it could not be written since
/// the program began, on a full disk for instance. For the end of main.
Result<void> finish_output();

}  // namespace teson
