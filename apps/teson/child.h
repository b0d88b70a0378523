#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "teson/base/error.h"

namespace teson::apps {

/// Runs a program with this process's input and output and waits for it. `failed` unless it ends
/// with status 0.
Result<void> run_child(const std::filesystem::path& program,
                       const std::vector<std::string>& arguments);

}  // namespace teson::apps
