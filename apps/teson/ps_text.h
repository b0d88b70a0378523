#pragma once

#include <string>
#include <string_view>

#include "teson/base/error.h"

namespace teson::apps {

/// What `teson ps` prints of a snapshot as an admin endpoint tells it: a line a host, process and
/// actor, indented. `failed`: it is none.
Result<std::string> ps_text(std::string_view snapshot);

}  // namespace teson::apps
