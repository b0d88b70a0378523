#include <fmt/format.h>

#include "teson/base/hash.h"
#include "teson/job/config_keys.h"
#include "teson/job/nearest.h"

namespace teson::job {
namespace {

std::string default_text(const ConfigKey& key) {
  if (!key.default_note.empty()) return key.default_note;
  return toml_value(key.read(Config{}));
}

std::string with_capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

constexpr std::string_view kStepsNote =
    "unless it moves the learning rate (cosine with decay_steps = 0, wsd with decay_steps above 0)";

/// What a resume may do with the key.
std::string resume_text(const ConfigKey& key) {
  if (key.scope == KeyScope::identity) return "Identity: a run goes on only with the same value";
  const std::string text = "May change when a run is resumed";
  return key.name == "train.steps" ? fmt::format("{}, {}", text, kStepsNote) : text;
}

std::string explain_key(const ConfigKey& key) {
  return fmt::format("  {}  (default: {})\n      {}\n      {}.\n      {}.\n", key.name,
                     default_text(key), key.explanation, with_capital(expected_of(key)),
                     resume_text(key));
}

std::string markdown(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

/// Whether the number of steps has a part in the learning rate before the last one.
bool steps_move_the_rate(const Config& config) {
  const bool cosine = config.optimizer.schedule == ScheduleKind::cosine;
  return cosine == (config.optimizer.decay_steps == 0);
}

bool matters(const ConfigKey& key, const Config& a, const Config& b) {
  if (key.name == "train.steps") return steps_move_the_rate(a) || steps_move_the_rate(b);
  return key.scope == KeyScope::identity;
}

}  // namespace

std::string_view to_string(Mode mode) {
  return mode == Mode::exact ? "exact" : "elastic";
}
std::string_view to_string(Compute compute) {
  return compute == Compute::fp32 ? "fp32" : "bf16";
}
std::string_view to_string(ScheduleKind kind) {
  return kind == ScheduleKind::cosine ? "cosine" : "wsd";
}

Result<std::string> explain_config(std::string_view wanted) {
  std::string text;
  std::vector<std::string> names = key_names();
  for (const ConfigTable& table : config_tables()) {
    names.push_back(table.name);
    std::string part;
    for (const ConfigKey& key : config_keys()) {
      const bool shown = wanted.empty() || wanted == key.name || wanted == table.name;
      if (shown && key.table() == table.name) part += explain_key(key);
    }
    if (part.empty()) continue;
    text += fmt::format("{}[{}]  {}\n{}", text.empty() ? "" : "\n", table.name, table.explanation,
                        part);
  }
  if (!text.empty()) return text;
  const std::string near = nearest(wanted, names);
  return fail(ErrorKind::invalid, fmt::format("there is no key or table '{}'{}", wanted,
                                              near.empty() ? "; without a name, all are explained"
                                                           : "; the nearest is " + near));
}

std::string configuration_page() {
  std::string text =
      "# Configuration\n\n"
      "A job is one TOML file; `teson train FILE.toml --set key=value` overrides single keys. A "
      "key that is not known, a value\n"
      "of the wrong type or outside its limits is refused with file, line and column. Every key "
      "has a default.\n"
      "`teson config --explain` says the same as plain text, `--explain KEY` of one key or table; "
      "this page is printed by\n"
      "`teson config --markdown`. `teson config FILE` prints a file with all defaults filled "
      "in.\n\n"
      "Keys marked *identity* belong to what a run is: a run's folder continues only with the same "
      "values. All others may\n"
      "change when a run is resumed, `train.steps` ";
  text += fmt::format("{}.\n", kStepsNote);
  for (const ConfigTable& table : config_tables()) {
    text +=
        fmt::format("\n## [{}]\n\n{}\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n",
                    table.name, table.explanation);
    for (const ConfigKey& key : config_keys()) {
      if (key.table() != table.name) continue;
      const bool noted = !key.default_note.empty();
      text += fmt::format("| `{}` | {} | {} | {}{} |\n", key.name,
                          noted ? key.default_note : "`" + default_text(key) + "`",
                          markdown(expected_of(key)), markdown(key.explanation),
                          key.scope == KeyScope::identity ? " *identity*" : "");
    }
  }
  return text;
}

std::string to_toml(const Config& config) {
  std::string text;
  for (const ConfigTable& table : config_tables()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table.name);
    for (const ConfigKey& key : config_keys()) {
      if (key.table() != table.name) continue;
      const ConfigValue value = key.read(config);
      if (std::holds_alternative<std::monostate>(value)) continue;
      text += fmt::format("{} = {}\n", key.name.substr(table.name.size() + 1), toml_value(value));
    }
  }
  return text;
}

std::vector<ConfigDifference> config_difference(const Config& a, const Config& b) {
  Config left = a, right = b;
  resolve(left);
  resolve(right);
  std::vector<ConfigDifference> differences;
  for (const ConfigKey& key : config_keys()) {
    if (!matters(key, left, right)) continue;
    const std::string was = toml_value(key.read(left));
    const std::string is = toml_value(key.read(right));
    if (was != is) differences.push_back({key.name, was, is});
  }
  return differences;
}

std::uint64_t plan_hash(const Config& config) {
  Config resolved = config;
  resolve(resolved);
  std::string text;
  for (const ConfigKey& key : config_keys()) {
    if (key.scope == KeyScope::free) continue;
    text += fmt::format("{}={}\n", key.name, toml_value(key.read(resolved)));
  }
  return hash64(text);
}

}  // namespace teson::job
