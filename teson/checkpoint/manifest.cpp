#include "teson/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/base/hash.h"

namespace teson {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t format_version = 1;
constexpr std::string_view prefix = R"({"checkpoint":)";
constexpr std::string_view middle = R"(,"checksum":")";
constexpr std::string_view suffix = "\"}\n";
constexpr std::size_t hex_digits = 16;

Failure bad(std::string what) {
  return fail(ErrorKind::invalid, "manifest: " + std::move(what));
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.size() != hex_digits) return {};
  std::uint64_t value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return {};
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return value;
}

/// Typed reading of one JSON object; the first fault is kept and everything after it reads as
/// empty.
class Fields {
 public:
  Fields(const Json& object, std::string where, std::string& fault)
      : object_(object), where_(std::move(where)), fault_(fault) {
    if (!object_.is_object()) note("", "an object");
  }

  std::uint64_t number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) return note(key, "a whole number from 0"), 0;
    return value->get<std::uint64_t>();
  }
  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return note(key, "a text"), "";
    return value->get<std::string>();
  }
  std::uint64_t checksum(const char* key) {
    const auto value = parse_hex(text(key));
    if (!value) note(key, "16 hexadecimal digits");
    return value.value_or(0);
  }
  /// The elements of a list of at most `most`, or none.
  const Json& list(const char* key, std::size_t most) {
    static const Json empty = Json::array();
    const Json* value = find(key);
    if (value == nullptr) return empty;
    if (!value->is_array() || value->size() > most) {
      return note(key, fmt::format("a list of at most {}", most)), empty;
    }
    return *value;
  }
  const Json& object(const char* key) {
    static const Json empty = Json::object();
    const Json* value = find(key);
    if (value == nullptr) return empty;
    if (!value->is_object()) return note(key, "an object"), empty;
    return *value;
  }
  void note(std::string_view key, std::string_view expected) {
    if (fault_.empty()) fault_ = fmt::format("{}{}: expected {}", where_, key, expected);
  }

 private:
  const Json* find(const char* key) {
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(key);
    if (at == object_.end()) return note(key, "it to be there"), nullptr;
    return &*at;
  }

  const Json& object_;
  std::string where_;
  std::string& fault_;
};

Json encode_meta(const CheckpointMeta& meta) {
  Json parameters = Json::array();
  for (const auto& parameter : meta.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"offset", parameter.offset},
                          {"elements", parameter.elements},
                          {"shape", parameter.shape}});
  }
  Json counters = Json::object();
  for (const auto& [name, value] : meta.counters)
    counters[name] = value;
  return {{"incarnation", meta.incarnation},
          {"epoch", meta.epoch},
          {"step", meta.step},
          {"chain_hash", meta.chain_hash},
          {"plan_hash", meta.plan_hash},
          {"tokenizer_hash", meta.tokenizer_hash},
          {"seed", meta.seed},
          {"counters", std::move(counters)},
          {"config", meta.config_text},
          {"parameters", std::move(parameters)}};
}

std::vector<std::int64_t> decode_shape(Fields& fields) {
  std::vector<std::int64_t> shape;
  for (const Json& extent : fields.list("shape", 16)) {
    if (!extent.is_number_unsigned()) fields.note("shape", "whole numbers from 0");
    shape.push_back(extent.is_number_unsigned() ? extent.get<std::int64_t>() : 0);
  }
  return shape;
}

CheckpointMeta decode_meta(const Json& json, std::string& fault) {
  Fields fields(json, "meta.", fault);
  CheckpointMeta meta{.incarnation = fields.number("incarnation"),
                      .epoch = fields.number("epoch"),
                      .step = fields.number("step"),
                      .chain_hash = fields.text("chain_hash"),
                      .config_text = fields.text("config"),
                      .plan_hash = fields.text("plan_hash"),
                      .tokenizer_hash = fields.text("tokenizer_hash"),
                      .seed = fields.number("seed"),
                      .counters = {},
                      .parameters = {}};
  for (const auto& [name, value] : fields.object("counters").items()) {
    if (!value.is_number_integer()) fields.note("counters", "whole numbers");
    meta.counters[name] = value.is_number_integer() ? value.get<std::int64_t>() : 0;
  }
  std::size_t index = 0;
  for (const Json& item : fields.list("parameters", parameters_max)) {
    Fields entry(item, fmt::format("meta.parameters[{}].", index++), fault);
    meta.parameters.push_back({.name = entry.text("name"),
                               .offset = entry.number("offset"),
                               .elements = entry.number("elements"),
                               .shape = decode_shape(entry)});
  }
  return meta;
}

ManifestSection decode_section(const Json& json, std::size_t index, std::string& fault) {
  Fields fields(json, fmt::format("sections[{}].", index), fault);
  ManifestSection section{
      .name = fields.text("name"), .bytes = fields.number("bytes"), .shards = {}};
  std::uint32_t number = 0;
  for (const Json& item : fields.list("files", shards_per_section_max)) {
    Fields file(item, fmt::format("sections[{}].files[{}].", index, number), fault);
    // The name is there for people; it is no path of its own, so that no manifest can point outside
    // its folder.
    if (file.text("name") != shard_file_name(section.name, number)) {
      file.note("name", shard_file_name(section.name, number));
    }
    section.shards.push_back({.offset = file.number("offset"),
                              .bytes = file.number("bytes"),
                              .checksum = file.checksum("checksum")});
    ++number;
  }
  return section;
}

Result<void> validate_section(const ManifestSection& section) {
  if (!is_section_name(section.name)) {
    return bad(fmt::format("section name '{}': expected 1 to {} of a-z 0-9 _ - .", section.name,
                           section_name_bytes_max));
  }
  if (section.bytes > section_bytes_max) {
    return bad(fmt::format("section '{}' has {} bytes, the limit is {}", section.name,
                           section.bytes, section_bytes_max));
  }
  if (section.shards.size() > shards_per_section_max) {
    return bad(fmt::format("section '{}' has {} files, the limit is {}: raise the size of a shard",
                           section.name, section.shards.size(), shards_per_section_max));
  }
  std::uint64_t at = 0;
  for (const auto& shard : section.shards) {
    if (shard.offset != at || shard.bytes == 0 || shard.bytes > section.bytes - at) {
      return bad(
          fmt::format("section '{}': a file holds bytes {}+{}, expected the next from {} of {}",
                      section.name, shard.offset, shard.bytes, at, section.bytes));
    }
    at += shard.bytes;
  }
  if (at != section.bytes) {
    return bad(fmt::format("section '{}': its files hold {} of {} bytes", section.name, at,
                           section.bytes));
  }
  return {};
}

Result<void> validate_parameter(const ParameterEntry& parameter, std::uint64_t elements_max) {
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t product = 1;
  bool fits = true;
  for (const auto extent : parameter.shape) {
    const auto size = static_cast<std::uint64_t>(extent);
    fits = fits && extent >= 0 && (size == 0 || product <= limit / size);
    product = fits ? product * size : 0;
  }
  if (!fits || product != parameter.elements) {
    return bad(fmt::format("parameter '{}': its shape does not give {} elements", parameter.name,
                           parameter.elements));
  }
  if (parameter.offset > elements_max || parameter.elements > elements_max - parameter.offset) {
    return bad(
        fmt::format("parameter '{}': elements {}+{} lie beyond the {} of the largest section",
                    parameter.name, parameter.offset, parameter.elements, elements_max));
  }
  return {};
}

}  // namespace

const ManifestSection* Manifest::find(std::string_view section) const {
  const auto at = std::find_if(sections.begin(), sections.end(),
                               [&](const ManifestSection& each) { return each.name == section; });
  return at == sections.end() ? nullptr : &*at;
}

ManifestSection plan_section(std::string_view name, std::uint64_t bytes,
                             std::uint64_t shard_bytes) {
  ManifestSection section{.name = std::string(name), .bytes = bytes, .shards = {}};
  for (std::uint64_t at = 0; at < bytes; at += shard_bytes) {
    section.shards.push_back(
        {.offset = at, .bytes = std::min(shard_bytes, bytes - at), .checksum = 0});
  }
  return section;
}

ShardHeader expected_header(const Manifest& manifest, const ManifestSection& section,
                            std::uint32_t index) {
  const auto& shard = section.shards.at(index);
  return {.section = section.name,
          .section_bytes = section.bytes,
          .offset = shard.offset,
          .payload_bytes = shard.bytes,
          .index = index,
          .count = static_cast<std::uint32_t>(section.shards.size()),
          .block_bytes = manifest.block_bytes};
}

Result<void> validate(const Manifest& manifest) {
  if (manifest.block_bytes == 0 || manifest.block_bytes > block_bytes_max) {
    return bad(
        fmt::format("block_bytes {}: expected 1 to {}", manifest.block_bytes, block_bytes_max));
  }
  if (manifest.sections.size() > sections_max) {
    return bad(fmt::format("{} sections, the limit is {}", manifest.sections.size(), sections_max));
  }
  std::uint64_t bytes_largest = 0;
  std::set<std::string_view> names;
  for (const auto& section : manifest.sections) {
    TESON_TRY_VOID(validate_section(section));
    if (!names.insert(section.name).second)
      return bad(fmt::format("section '{}' is there twice", section.name));
    bytes_largest = std::max(bytes_largest, section.bytes);
  }
  if (manifest.meta.parameters.size() > parameters_max) {
    return bad(fmt::format("{} parameters, the limit is {}", manifest.meta.parameters.size(),
                           parameters_max));
  }
  std::set<std::string_view> parameters;
  for (const auto& parameter : manifest.meta.parameters) {
    TESON_TRY_VOID(validate_parameter(parameter, bytes_largest / sizeof(float)));
    if (!parameters.insert(parameter.name).second) {
      return bad(fmt::format("parameter '{}' is there twice", parameter.name));
    }
  }
  return {};
}

Result<std::string> encode_manifest(const Manifest& manifest) {
  TESON_TRY_VOID(validate(manifest));
  Json sections = Json::array();
  for (const auto& section : manifest.sections) {
    Json files = Json::array();
    for (std::uint32_t index = 0; index < section.shards.size(); ++index) {
      const auto& shard = section.shards[index];
      files.push_back({{"name", shard_file_name(section.name, index)},
                       {"offset", shard.offset},
                       {"bytes", shard.bytes},
                       {"checksum", hex(shard.checksum)}});
    }
    sections.push_back(
        {{"name", section.name}, {"bytes", section.bytes}, {"files", std::move(files)}});
  }
  const Json body = {{"format", format_version},
                     {"block_bytes", manifest.block_bytes},
                     {"meta", encode_meta(manifest.meta)},
                     {"sections", std::move(sections)}};
  std::string text;
  try {
    text = body.dump();
  } catch (const nlohmann::json::exception& error) {
    return bad(fmt::format("a text of the state is not UTF-8 ({})", error.what()));
  }
  std::string whole = fmt::format("{}{}{}{}{}", prefix, text, middle, hex(hash64(text)), suffix);
  if (whole.size() > manifest_bytes_max) {
    return bad(fmt::format("{} bytes, the limit is {}: shorten the texts of the state",
                           whole.size(), manifest_bytes_max));
  }
  return whole;
}

Result<Manifest> decode_manifest(std::string_view text) {
  const std::size_t tail = middle.size() + hex_digits + suffix.size();
  if (text.size() < prefix.size() + tail || !text.starts_with(prefix) || !text.ends_with(suffix)) {
    return bad(fmt::format(
        "{} bytes that do not begin or end as a manifest does: it was cut short or is another file",
        text.size()));
  }
  const std::string_view body = text.substr(prefix.size(), text.size() - prefix.size() - tail);
  const std::string_view end = text.substr(prefix.size() + body.size());
  const auto checksum = parse_hex(end.substr(middle.size(), hex_digits));
  if (!end.starts_with(middle) || checksum != hash64(body)) {
    return bad("its checksum does not match its contents");
  }
  return decode_manifest_body(body);
}

Result<Manifest> decode_manifest_body(std::string_view json) {
  const Json body = Json::parse(json, nullptr, false);
  if (body.is_discarded()) return bad("not JSON");
  std::string fault;
  Fields fields(body, "", fault);
  if (const auto found = fields.number("format"); fault.empty() && found != format_version) {
    return bad(fmt::format("format {}, this program reads {}", found, format_version));
  }
  Manifest manifest;
  const std::uint64_t block_bytes = fields.number("block_bytes");
  if (block_bytes > block_bytes_max)
    fields.note("block_bytes", fmt::format("at most {}", block_bytes_max));
  manifest.block_bytes = static_cast<std::uint32_t>(block_bytes);
  manifest.meta = decode_meta(fields.object("meta"), fault);
  std::size_t index = 0;
  for (const Json& item : fields.list("sections", sections_max)) {
    manifest.sections.push_back(decode_section(item, index++, fault));
  }
  if (!fault.empty()) return bad(fault);
  TESON_TRY_VOID(validate(manifest));
  return manifest;
}

}  // namespace teson
