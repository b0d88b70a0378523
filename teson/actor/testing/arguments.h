#pragma once

// Command lines of the programs that run faults by a seed.

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace teson::actor::testing {

/// What stands behind `name`.
inline std::uint64_t number(int argc, char** argv, std::string_view name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return std::strtoull(argv[i + 1], nullptr, 10);
  }
  return otherwise;
}

inline bool has_flag(int argc, char** argv, std::string_view name) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == name) return true;
  }
  return false;
}

}  // namespace teson::actor::testing
