#pragma once

#include <functional>
#include <string>

#include "teson/base/clock.h"
#include "teson/base/error.h"

namespace teson::sim {

/// Runs `body` in a process of its own, a fork of this one, and returns the text that it returns: what it leaves behind ends with it. Call it
/// while this process has one thread. `failed`: it was ended by a signal or by itself; `timed_out`: it was ended because it took longer than
/// `limit` of real time.
Result<std::string> run_apart(const std::function<std::string()>& body, Duration limit);

}  // namespace teson::sim
