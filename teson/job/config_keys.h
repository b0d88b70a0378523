#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "teson/job/config.h"

namespace teson::job {

/// What a key may hold; monostate: an optional one that is not set.
using ConfigValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>>;
enum class ValueKind : std::uint8_t { boolean, whole, real, text, list };

/// For whole and real numbers the value's limits, for text and lists those of the length (bytes,
/// entries).
struct ValueLimits {
  double low = 0, high = 0;
  bool low_open = false, high_open = false;  ///< the limit itself is excluded
  std::int64_t whole_low = 0, whole_high = 0;
};

/// Which comparisons a key takes part in.
enum class KeyScope : std::uint8_t {
  free,      ///< may differ at any time
  plan,      ///< equal for all workers of a run, may change between sessions of it
  identity,  ///< another value makes another run
};

/// All that is known about one key. The single place where a key is described.
struct ConfigKey {
  std::string name;  ///< dotted: "batch.lanes"
  ValueKind kind = ValueKind::text;
  bool optional = false;
  ValueLimits limits;
  std::vector<std::string> choices;  ///< of a text; empty: any
  KeyScope scope = KeyScope::free;
  std::string explanation;   ///< one sentence
  std::string default_note;  ///< what an empty or unset default means; may be empty
  std::function<ConfigValue(const Config&)> read;
  std::function<void(Config&, const ConfigValue&)> write;  ///< of a value that check_value accepts

  std::string_view table() const { return std::string_view(name).substr(0, name.find('.')); }
};

struct ConfigTable {
  std::string name;
  std::string explanation;
};

/// In the order of explanation and canonical form.
const std::vector<ConfigKey>& config_keys();
const std::vector<ConfigTable>& config_tables();
const ConfigKey* find_key(std::string_view name);
std::vector<std::string> key_names();

/// "a whole number from 1 to 64"
std::string expected_of(const ConfigKey& key);
/// Whether the value has the key's kind and lies within its limits.
bool check_value(const ConfigKey& key, const ConfigValue& value);
/// "the text \"four\"", "the number 0.5", cut to a bearable length.
std::string found_text(const ConfigValue& value);
/// As TOML, to the bit; "unset" for monostate.
std::string toml_value(const ConfigValue& value);

/// A rule that does not hold. One of the keys is to be blamed: whichever was given, the first of
/// several.
struct ConfigProblem {
  std::vector<std::string> keys;
  std::string message;
  /// With the first key in front, unless the message begins with it.
  std::string text() const;
};
/// Of a Config whose single values are within their limits.
std::vector<ConfigProblem> check_rules(const Config& config);
/// Fills in data.vocabulary from the preset.
void resolve(Config& config);

}  // namespace teson::job
