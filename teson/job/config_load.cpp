#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>

#include "teson/base/file.h"
#include "teson/job/config_keys.h"
#include "teson/job/nearest.h"
#include "teson/job/text_width.h"
#include "teson/job/toml_guard.h"

namespace teson::job {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kDotsMax = 1000;
constexpr std::size_t kErrorsMax = 10;
constexpr std::size_t kNameColumnsMax = 80;

struct Position {
  std::size_t line = 0, column = 0;
  auto operator<=>(const Position&) const = default;
};

Position position_of(const toml::source_region& source) {
  return {source.begin.line, source.begin.column};
}

/// A node as one of our values; unset with a description for what no key can hold.
ConfigValue value_of(const toml::node& node, ValueKind wanted, std::string& found) {
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* text = node.as_string()) {
    if (wanted == ValueKind::list) return std::vector<std::string>{text->get()};
    return text->get();
  }
  if (const auto* number = node.as_integer()) {
    if (wanted == ValueKind::real) return static_cast<double>(number->get());
    return number->get();
  }
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* array = node.as_array()) {
    std::vector<std::string> list;
    for (const toml::node& entry : *array) {
      const auto* text = entry.as_string();
      if (text == nullptr) {
        found = "a list with something else than text in it";
        return {};
      }
      list.push_back(text->get());
    }
    return list;
  }
  found = node.is_table() ? "a table" : "a date or time";
  return {};
}

/// A whole number in decimal digits, of any size.
bool is_whole(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Collects what is wrong with a file and its overrides, and the values of what is right.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  void read(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) {
      problem({1, 1}, "expected a TOML file, found a binary one");
      return;
    }
    if (count_dots(text) > kDotsMax) {
      problem(
          {1, 1},
          fmt::format(
              "expected a TOML file of a job, found one with more than {} dots in keys and numbers",
              kDotsMax));
      return;
    }
    try {
      const toml::table root = toml::parse(text, std::string_view(name_));
      for (const auto& [key, node] : root)
        read_top(key, node);
    } catch (const toml::parse_error& error) {
      problem(position_of(error.source()), printable(error.description()));
    }
  }

  void override_with(const std::string& text) {
    const std::size_t equals = text.find('=');
    where_ = fmt::format("--set {}", truncate_to_width(printable(text), kNameColumnsMax));
    if (equals == std::string::npos || equals == 0) {
      problem({}, "expected key=value");
      return;
    }
    const std::string name = text.substr(0, equals);
    const ConfigKey* key = find_key(name);
    if (key == nullptr) {
      unknown({}, name);
      return;
    }
    overrides_[name] = where_;
    set_from_text(*key, text.substr(equals + 1));
  }

  Result<Config> finish() {
    if (problems_.empty()) check_rules_of_result();
    if (problems_.empty()) return config_;
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const auto& a, const auto& b) { return a.at < b.at; });
    std::string message;
    for (std::size_t i = 0; i < std::min(problems_.size(), kErrorsMax); ++i) {
      message += (i == 0 ? "" : "\n") + problems_[i].text;
    }
    if (problems_.size() > kErrorsMax) {
      message += fmt::format("\nand {} more", problems_.size() - kErrorsMax);
    }
    return fail(ErrorKind::invalid, std::move(message));
  }

 private:
  struct Problem {
    Position at;
    std::string text;
  };

  std::string place(Position at) const {
    if (!where_.empty()) return where_;
    return at.line == 0 ? name_ : fmt::format("{}:{}:{}", name_, at.line, at.column);
  }

  void problem(Position at, std::string_view text) {
    // Overrides come after the file: they have no line of their own.
    const Position order = where_.empty() ? at : Position{SIZE_MAX, problems_.size()};
    problems_.push_back({order, fmt::format("{}: {}", place(at), text)});
  }

  void unknown(Position at, const std::string& name) {
    const std::string near = nearest(name, key_names());
    const std::string shown = truncate_to_width(printable(name), kNameColumnsMax);
    problem(at, fmt::format("unknown key {}; {}", shown,
                            near.empty() ? "`teson config --explain` lists all keys"
                                         : "the nearest known key is " + near));
  }

  void read_top(const toml::key& key, const toml::node& node) {
    const std::string name(key.str());
    const auto& tables = config_tables();
    const bool known = std::any_of(tables.begin(), tables.end(),
                                   [&](const ConfigTable& table) { return table.name == name; });
    const toml::table* table = node.as_table();
    if (!known && table != nullptr) {
      std::vector<std::string> names;
      for (const ConfigTable& each : tables)
        names.push_back(each.name);
      const std::string near = nearest(name, names);
      problem(
          position_of(key.source()),
          fmt::format("unknown table [{}]; {}", truncate_to_width(printable(name), kNameColumnsMax),
                      near.empty() ? "`teson config --explain` lists all tables"
                                   : fmt::format("the nearest known table is [{}]", near)));
    } else if (!known) {
      unknown(position_of(key.source()), name);
    } else if (table == nullptr) {
      problem(position_of(key.source()),
              fmt::format("{0}: expected a table [{0}], found a value", name));
    } else {
      for (const auto& [inner, value] : *table)
        read_key(name, inner, value);
    }
  }

  void read_key(const std::string& table, const toml::key& name, const toml::node& node) {
    const std::string full = table + "." + std::string(name.str());
    const ConfigKey* key = find_key(full);
    if (key == nullptr) {
      unknown(position_of(name.source()), full);
      return;
    }
    positions_[full] = position_of(node.source());
    set(*key, node, position_of(node.source()));
  }

  void set(const ConfigKey& key, const toml::node& node, Position at) {
    std::string found;
    const ConfigValue value = value_of(node, key.kind, found);
    set_value(key, value, found, at);
  }

  void set_value(const ConfigKey& key, const ConfigValue& value, std::string found, Position at) {
    if (found.empty() && check_value(key, value)) {
      key.write(config_, value);
      return;
    }
    if (found.empty()) found = found_text(value);
    std::string hint;
    if (const auto* text = std::get_if<std::string>(&value);
        text != nullptr && !key.choices.empty()) {
      const std::string near = nearest(*text, key.choices);
      if (!near.empty()) hint = fmt::format(" (did you mean \"{}\"?)", near);
    }
    problem(at,
            fmt::format("{}: expected {}, found {}{}", key.name, expected_of(key), found, hint));
  }

  /// A table of one value, named v.
  static std::optional<toml::table> parse_value(const std::string& text) {
    try {
      return toml::parse(std::string_view("v = " + text), std::string_view("--set"));
    } catch (const toml::parse_error&) {
      return std::nullopt;
    }
  }

  void set_from_text(const ConfigKey& key, const std::string& text) {
    const bool as_toml =
        key.kind != ValueKind::text || (!text.empty() && (text[0] == '"' || text[0] == '\''));
    const bool bare_entry = key.kind == ValueKind::list &&
                            (text.empty() || (text[0] != '[' && text[0] != '"' && text[0] != '\''));
    if (as_toml && !bare_entry && text.find('\n') == std::string::npos &&
        count_dots(text) <= kDotsMax) {
      const auto parsed = parse_value(text);
      if (const auto* node = parsed ? parsed->get("v") : nullptr;
          node != nullptr && parsed->size() == 1)
        return set(key, *node, {});
      // Else it is said below, as the text that was found.
    }
    if (bare_entry) {
      set_value(key, std::vector<std::string>{text}, {}, {});
    } else if (key.kind == ValueKind::whole && is_whole(text)) {
      set_value(key, text, fmt::format("{}, which is out of range", printable(text)), {});
    } else {
      set_value(key, text, {}, {});
    }
  }

  void check_rules_of_result() {
    resolve(config_);
    where_.clear();
    for (const ConfigProblem& broken : check_rules(config_)) {
      const std::string& blamed = blame(broken.keys);
      const auto at = positions_.find(blamed);
      if (const auto given = overrides_.find(blamed); given != overrides_.end())
        where_ = given->second;
      problem(at == positions_.end() ? Position{} : at->second, broken.text());
      where_.clear();
    }
  }

  /// What the user gave last is the first suspect: an override, then a line of the file.
  const std::string& blame(const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) {
      if (overrides_.contains(key)) return key;
    }
    for (const std::string& key : keys) {
      if (positions_.contains(key)) return key;
    }
    return keys.front();
  }

  const std::string name_;
  std::string where_;  ///< the override being read; empty: the file
  Config config_;
  std::vector<Problem> problems_;
  std::map<std::string, Position> positions_;     ///< of the keys in the file
  std::map<std::string, std::string> overrides_;  ///< by key: "--set key=value"
};

}  // namespace

Result<Config> parse_config(std::string_view text, std::string_view name,
                            const std::vector<std::string>& overrides) {
  Reader reader{std::string(name)};
  reader.read(text);
  for (const std::string& each : overrides)
    reader.override_with(each);
  return reader.finish();
}

Result<Config> load_config(const std::filesystem::path& path,
                           const std::vector<std::string>& overrides) {
  if (path.empty()) return parse_config({}, "the configuration", overrides);
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return fail(ErrorKind::invalid,
                fmt::format("{}: expected a TOML file, found {}", path.string(),
                            S_ISDIR(info.st_mode) ? "a folder" : "a device or socket"));
  }
  TESON_TRY(const std::string text, read_file(path, kFileBytesMax));
  return parse_config(text, path.string(), overrides);
}

}  // namespace teson::job
