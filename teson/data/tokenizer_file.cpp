#include <array>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/base/file.h"
#include "teson/data/bpe.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "teson-tokenizer";
constexpr int kVersion = 1;
constexpr std::size_t kFileBytesMax = 512 << 20;

/// GPT-2's mapping (encoder.py, bytes_to_unicode): a printable Latin-1 byte stands for itself, the
/// others follow from U+0100.
struct ByteMapping {
  std::array<std::string, 256> text_of;
  std::unordered_map<std::string, char> byte_of;

  ByteMapping() {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const unsigned point = printable ? byte : next++;
      std::string& text = text_of[byte];
      if (point < 0x80) {
        text = static_cast<char>(point);
      } else {
        text = {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
      }
      byte_of.emplace(text, static_cast<char>(byte));
    }
  }
};

const ByteMapping& byte_mapping() {
  static const ByteMapping mapping;
  return mapping;
}

std::string to_mapped(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += byte_mapping().text_of[static_cast<unsigned char>(byte)];
  return text;
}

/// Nothing if some character stands for no byte.
std::optional<std::string> from_mapped(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const std::size_t length = static_cast<unsigned char>(text[0]) < 0x80 ? 1 : 2;
    const auto found = byte_mapping().byte_of.find(std::string(text.substr(0, length)));
    if (found == byte_mapping().byte_of.end()) return std::nullopt;
    bytes += found->second;
    text.remove_prefix(length);
  }
  return bytes;
}

Failure refuse(std::string_view name, std::string_view what) {
  return fail(
      ErrorKind::invalid,
      fmt::format("tokenizer '{}': {}; it is damaged or was not written by teson, prepare the "
                  "corpus again",
                  name, what));
}

Result<std::vector<std::pair<TokenId, TokenId>>> merges_of(const Json& list,
                                                           std::string_view name) {
  if (!list.is_array()) return refuse(name, "expected 'merges' to be a list");
  if (list.size() > kVocabularyMax) return refuse(name, "too many merges");
  std::unordered_map<std::string, TokenId> ids;
  for (int byte = 0; byte < 256; ++byte)
    ids.emplace(std::string(1, static_cast<char>(byte)), byte);
  std::vector<std::pair<TokenId, TokenId>> merges;
  for (const Json& entry : list) {
    const auto wrong = [&] {
      return refuse(name,
                    fmt::format("merge {} is not two tokens with a space between", merges.size()));
    };
    if (!entry.is_string()) return wrong();
    const std::string& text = entry.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.size() > 4 * kTokenBytesMax + 1) return wrong();
    const auto left = from_mapped(std::string_view(text).substr(0, space));
    const auto right = from_mapped(std::string_view(text).substr(space + 1));
    if (!left || !right) return wrong();
    const auto left_id = ids.find(*left);
    const auto right_id = ids.find(*right);
    if (left_id == ids.end() || right_id == ids.end()) {
      return refuse(
          name, fmt::format("merge {} joins a token that no earlier merge makes", merges.size()));
    }
    merges.emplace_back(left_id->second, right_id->second);
    ids.emplace(*left + *right, static_cast<TokenId>(255 + merges.size()));
  }
  return merges;
}

Result<BpeModel> model_of(const Json& file, std::string_view name) {
  if (!file.is_object() || file.value("format", Json()) != Json(kFormat))
    return refuse(name, "not a tokenizer file");
  if (file.value("version", Json()) != Json(kVersion)) {
    return refuse(name, fmt::format("expected version {}, found {}", kVersion,
                                    shorten(file.value("version", Json()).dump())));
  }
  if (!file.contains("merges") || !file.contains("specials"))
    return refuse(name, "'merges' or 'specials' is missing");
  BpeModel model;
  TESON_TRY(model.merges, merges_of(file["merges"], name));
  if (!file["specials"].is_array()) return refuse(name, "expected 'specials' to be a list");
  model.specials.clear();
  for (const Json& special : file["specials"]) {
    if (!special.is_string()) return refuse(name, "expected 'specials' to be a list of strings");
    model.specials.push_back(special.get<std::string>());
  }
  return model;
}

}  // namespace

std::string Tokenizer::to_json() const {
  Json merges = Json::array();
  for (const auto& [left, right] : model().merges) {
    merges.push_back(to_mapped(bytes_of(left)) + " " + to_mapped(bytes_of(right)));
  }
  Json file;
  file["format"] = kFormat;
  file["version"] = kVersion;
  file["pattern"] = kSplitPattern;
  file["specials"] = model().specials;
  file["merges"] = std::move(merges);
  file["fingerprint"] = fingerprint();
  return file.dump(1) + "\n";
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) {
  Json file;
  try {
    file = Json::parse(json);
  } catch (const Json::exception& exception) {
    return refuse(
        name, fmt::format("expected a whole JSON object, found: {}", shorten(exception.what())));
  }
  TESON_TRY(BpeModel model, model_of(file, name));
  auto tokenizer = make(std::move(model));
  if (!tokenizer) return refuse(name, tokenizer.error().message);
  if (file.value("fingerprint", Json()) != Json(tokenizer->fingerprint())) {
    return refuse(name, "the fingerprint does not fit its contents");
  }
  // There is one way to write a tokenizer: this refuses members that nothing reads, another
  // pattern, repeated names.
  if (tokenizer->to_json() != json)
    return refuse(name, "it is not written as version 1 is written");
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  TESON_TRY(const std::string json, read_file(path, kFileBytesMax));
  return parse(json, path.string());
}

Result<void> Tokenizer::save(const std::filesystem::path& path) const {
  return write_file_atomic(path, to_json());
}

}  // namespace teson::data
