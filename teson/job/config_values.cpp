#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "teson/job/config_keys.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

constexpr std::size_t kFoundColumnsMax = 60;

std::string joined(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ";
    text += fmt::format("\"{}\"", choices[i]);
  }
  return text;
}

bool is_plain_text(std::string_view text) {
  return is_utf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
         });
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string real_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

bool check_length(const ConfigKey& key, std::size_t size) {
  return size >= static_cast<std::size_t>(key.limits.whole_low) &&
         size <= static_cast<std::size_t>(key.limits.whole_high);
}

bool check_real(const ValueLimits& limits, double number) {
  if (!std::isfinite(number)) return false;
  if (limits.low_open ? number <= limits.low : number < limits.low) return false;
  return limits.high_open ? number < limits.high : number <= limits.high;
}

}  // namespace

std::string expected_of(const ConfigKey& key) {
  const ValueLimits& limits = key.limits;
  switch (key.kind) {
    case ValueKind::boolean:
      return "true or false";
    case ValueKind::whole:
      return fmt::format("a whole number from {} to {}", limits.whole_low, limits.whole_high);
    case ValueKind::real:
      return fmt::format("a number {} {} {} {}", limits.low_open ? "above" : "from", limits.low,
                         limits.high_open ? "to below" : "to", limits.high);
    case ValueKind::text:
      if (!key.choices.empty()) return joined(key.choices);
      return fmt::format("text of {} to {} bytes of UTF-8, without control characters",
                         limits.whole_low, limits.whole_high);
    case ValueKind::list:
      return fmt::format("a list of {} to {} texts", limits.whole_low, limits.whole_high);
  }
  return {};
}

bool check_value(const ConfigKey& key, const ConfigValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return key.optional;
  switch (key.kind) {
    case ValueKind::boolean:
      return std::holds_alternative<bool>(value);
    case ValueKind::whole: {
      const auto* number = std::get_if<std::int64_t>(&value);
      return number != nullptr && *number >= key.limits.whole_low &&
             *number <= key.limits.whole_high;
    }
    case ValueKind::real: {
      const auto* number = std::get_if<double>(&value);
      return number != nullptr && check_real(key.limits, *number);
    }
    case ValueKind::text: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) return false;
      if (!key.choices.empty()) {
        return std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end();
      }
      return check_length(key, text->size()) && is_plain_text(*text);
    }
    case ValueKind::list: {
      const auto* list = std::get_if<std::vector<std::string>>(&value);
      return list != nullptr && check_length(key, list->size()) &&
             std::all_of(list->begin(), list->end(), [](const std::string& entry) {
               return !entry.empty() && is_plain_text(entry);
             });
    }
  }
  return false;
}

std::string found_text(const ConfigValue& value) {
  struct Describe {
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const {
      return fmt::format("the number {}", real_text(number));
    }
    std::string operator()(const std::string& text) const {
      return fmt::format("the text \"{}\"", truncate_to_width(printable(text), kFoundColumnsMax));
    }
    std::string operator()(const std::vector<std::string>& list) const {
      if (list.empty()) return "an empty list";
      for (const std::string& entry : list) {
        if (entry.empty()) return "an empty text in it";
        if (!is_plain_text(entry))
          return fmt::format("in it the text \"{}\", which is no plain UTF-8",
                             truncate_to_width(printable(entry), kFoundColumnsMax));
      }
      return fmt::format("a list of {}", list.size());
    }
  };
  return std::visit(Describe{}, value);
}

std::string toml_value(const ConfigValue& value) {
  struct Write {
    std::string operator()(std::monostate) const { return "unset"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return real_text(number); }
    std::string operator()(const std::string& text) const { return toml_text(text); }
    std::string operator()(const std::vector<std::string>& list) const {
      std::string text = "[";
      for (const std::string& entry : list)
        text += (text.size() > 1 ? ", " : "") + toml_text(entry);
      return text + "]";
    }
  };
  return std::visit(Write{}, value);
}

}  // namespace teson::job
