#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace teson::apps {

/// For the numbers of options: refuses what is not from `low` to `high`. In words of our own, since CLI11's
/// differ from version to version.
template <typename T>
CLI::Validator number_from(T low, T high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        T value{};
        const bool fits = CLI::detail::lexical_cast(text, value) && low <= value && value <= high;
        return fits ? std::string() : fmt::format("expected {} to {}, found {}", low, high, text);
      },
      fmt::format("{} to {}", low, high));
}

}  // namespace teson::apps
