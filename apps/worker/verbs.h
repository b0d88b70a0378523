#pragma once

#include <string>
#include <vector>

namespace teson::apps {

/// What `teson` starts this program for. Each gets the words after its name, checked by `teson`,
/// and returns the exit status.

/// rank: trains, as the order says that the controller sends; see worker/rank.cpp.
int run_rank(const std::vector<std::string>& arguments);
/// generate FOLDER PROMPT DATA TOKENS TEMPERATURE TOP_P TOP_K SEED: continues a text on standard
/// output.
int run_generate(const std::vector<std::string>& arguments);

}  // namespace teson::apps
