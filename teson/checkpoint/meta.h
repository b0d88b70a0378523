#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace teson {

/// Where one parameter lies in the flat arrays, in elements. Every section of a training state has
/// this layout.
struct ParameterEntry {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;
  std::vector<std::int64_t> shape;
  bool operator==(const ParameterEntry&) const = default;
};

/// What a training state says of itself, beside its arrays. Small: it is kept in the manifest as
/// JSON.
struct CheckpointMeta {
  /// Raised by each restart from a checkpoint. A higher incarnation is newer, whatever its step.
  std::uint64_t incarnation = 0;
  /// The membership under which `step` committed.
  std::uint64_t epoch = 0;
  /// Committed steps so far; the next step to do has this number.
  std::uint64_t step = 0;
  /// The digest of the committed history, lower-case hexadecimal.
  std::string chain_hash;
  std::string config_text;
  std::string plan_hash;
  std::string tokenizer_hash;
  std::uint64_t seed = 0;
  /// Totals that a resumed run goes on counting from, by name ("tokens", "updates").
  std::map<std::string, std::int64_t> counters;
  std::vector<ParameterEntry> parameters;
  bool operator==(const CheckpointMeta&) const = default;
};

}  // namespace teson
