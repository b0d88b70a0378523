#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "teson/base/error.h"
#include "teson/job/config.h"

namespace teson::apps {

/// Prepares the corpus of `config` in `folder`, or finds it prepared, with progress on standard
/// error. Returns a few lines about it for people. The folder's lock is let go on return: workers
/// open it on their own.
Result<std::string> prepare_corpus(const job::Config& config, const std::filesystem::path& folder,
                                   std::stop_token stop);

}  // namespace teson::apps
