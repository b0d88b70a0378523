#pragma once

#include <string>

namespace teson {

/// What this machine calls itself.
std::string host_name();

}  // namespace teson
