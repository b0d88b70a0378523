#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace teson::bench {

/// Prints one figure: a JSON line with --json, else a line for people. Names need no escaping.
inline void print_figure(bool json, const std::string& name, double value,
                         const std::string& unit) {
  if (json) {
    fmt::print("{{\"name\":\"{}\",\"value\":{},\"unit\":\"{}\"}}\n", name, value, unit);
  } else {
    fmt::print("{:<44} {:>12.3f} {}\n", name, value, unit);
  }
  std::fflush(stdout);
}

inline double quantile_of(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values.empty()
             ? 0
             : values[std::min(values.size() - 1,
                               static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

/// Whether a flag is among the arguments.
inline bool has_flag(int argc, char** argv, const std::string& flag) {
  return std::any_of(argv + 1, argv + argc, [&](const char* word) { return flag == word; });
}

}  // namespace teson::bench
