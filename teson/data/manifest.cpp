#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "teson/base/hash.h"
#include "teson/data/prepare.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "teson-corpus";
constexpr int kVersion = 1;

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// JSON holds UTF-8 only, a path any bytes: what is not UTF-8, and "%", becomes %XX.
std::string escape_path(std::string_view path) {
  std::string text;
  while (!path.empty()) {
    const std::string_view valid = path.substr(0, valid_utf8_prefix(path));
    for (const char byte : valid)
      text += byte == '%' ? std::string("%25") : std::string(1, byte);
    path.remove_prefix(valid.size());
    if (path.empty()) break;
    text += fmt::format("%{:02X}", static_cast<unsigned char>(path[0]));
    path.remove_prefix(1);
  }
  return text;
}

std::string unescape_path(const std::string& text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      path += static_cast<char>(std::strtoul(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      path += text[i];
    }
  }
  return path;
}

Json write_split(const CorpusManifest::SplitEntry& split) {
  Json shards = Json::array();
  for (const ShardEntry& shard : split.shards) {
    shards.push_back(Json{{"file", shard.file},
                          {"tokens", shard.tokens},
                          {"bytes", shard.bytes},
                          {"checksum", fmt::format("{:016x}", shard.checksum)}});
  }
  return Json{{"documents", split.documents},
              {"bytes", split.bytes},
              {"tokens", split.tokens},
              {"shards", shards}};
}

Json write(const CorpusManifest& manifest) {
  Json sources = Json::array();
  for (const auto& entry : manifest.sources) {
    sources.push_back(Json{{"path", escape_path(entry.source.path)},
                           {"bytes", entry.source.bytes},
                           {"modified_ns", entry.source.modified_ns},
                           {"sha256", entry.sha256}});
  }
  const CorpusCounts& counts = manifest.counts;
  return Json{{"format", kFormat},
              {"version", kVersion},
              {"settings", manifest.settings},
              {"tokenizer", manifest.tokenizer},
              {"vocabulary", manifest.vocabulary},
              {"train_entropy", manifest.train_entropy},
              {"train", write_split(manifest.train)},
              {"validation", write_split(manifest.validation)},
              {"counts", Json{{"documents", counts.documents},
                              {"bytes", counts.bytes},
                              {"empty", counts.empty},
                              {"duplicates", counts.duplicates},
                              {"cut", counts.cut},
                              {"source_bytes", counts.source_bytes}}},
              {"sources", sources}};
}

CorpusManifest::SplitEntry read_split(const Json& json) {
  CorpusManifest::SplitEntry split;
  split.documents = json.at("documents").get<std::uint64_t>();
  split.bytes = json.at("bytes").get<std::uint64_t>();
  split.tokens = json.at("tokens").get<std::uint64_t>();
  for (const Json& shard : json.at("shards")) {
    split.shards.push_back(
        {.file = shard.at("file").get<std::string>(),
         .tokens = shard.at("tokens").get<std::uint64_t>(),
         .bytes = shard.at("bytes").get<std::uint64_t>(),
         .checksum = std::stoull(shard.at("checksum").get<std::string>(), nullptr, 16)});
  }
  return split;
}

/// Throws what the JSON library throws; the caller then compares with what would be written.
CorpusManifest read(const Json& json) {
  CorpusManifest manifest;
  manifest.settings = json.at("settings").get<std::string>();
  manifest.tokenizer = json.at("tokenizer").get<std::string>();
  manifest.vocabulary = json.at("vocabulary").get<std::uint64_t>();
  manifest.train_entropy = json.at("train_entropy").get<double>();
  manifest.train = read_split(json.at("train"));
  manifest.validation = read_split(json.at("validation"));
  const Json& counts = json.at("counts");
  manifest.counts = {.documents = counts.at("documents").get<std::uint64_t>(),
                     .bytes = counts.at("bytes").get<std::uint64_t>(),
                     .empty = counts.at("empty").get<std::uint64_t>(),
                     .duplicates = counts.at("duplicates").get<std::uint64_t>(),
                     .cut = counts.at("cut").get<std::uint64_t>(),
                     .source_bytes = counts.at("source_bytes").get<std::uint64_t>()};
  for (const Json& source : json.at("sources")) {
    manifest.sources.push_back(
        {.source = {.path = unescape_path(source.at("path").get<std::string>()),
                    .bytes = source.at("bytes").get<std::uint64_t>(),
                    .modified_ns = source.at("modified_ns").get<std::int64_t>()},
         .sha256 = source.at("sha256").get<std::string>()});
  }
  return manifest;
}

/// What the numbers of a manifest owe each other; a name with a "/" would lead out of the folder.
bool is_sound(const CorpusManifest& manifest) {
  if (!is_hex(manifest.settings, 64) || !is_hex(manifest.tokenizer, 64)) return false;
  if (!std::isfinite(manifest.train_entropy) || manifest.vocabulary > kVocabularyMax) return false;
  for (const auto* split : {&manifest.train, &manifest.validation}) {
    std::uint64_t tokens = 0;
    for (const ShardEntry& shard : split->shards) {
      if (shard.file.empty() || shard.file.find('/') != std::string::npos || shard.tokens == 0)
        return false;
      if (__builtin_add_overflow(tokens, shard.tokens, &tokens)) return false;
    }
    if (tokens != split->tokens) return false;
  }
  return true;
}

}  // namespace

std::string encode_manifest(const CorpusManifest& manifest) {
  Json json = write(manifest);
  Sha256 digest;
  digest.update(json.dump());
  json["checksum"] = digest.finish();
  return json.dump(1) + "\n";
}

Result<CorpusManifest> decode_manifest(std::string_view text, std::string_view name) {
  const auto refuse = [&](std::string_view what) {
    return fail(ErrorKind::invalid,
                fmt::format("corpus manifest '{}': {}; prepare the corpus again", name, what));
  };
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || json.value("format", Json()) != Json(kFormat))
      return refuse("not the manifest of a corpus");
    if (json.value("version", Json()) != Json(kVersion)) {
      return refuse(fmt::format("expected version {}, found {}", kVersion,
                                shorten(json.value("version", Json()).dump())));
    }
    CorpusManifest manifest = read(json);
    // There is one way to write a manifest: this refuses every other, the wrong checksum and the
    // changed digit included.
    if (!is_sound(manifest) || encode_manifest(manifest) != text)
      return refuse("it was changed or damaged");
    return manifest;
  } catch (const std::exception& exception) {
    return refuse(fmt::format("it is damaged: {}", shorten(exception.what())));
  }
}

}  // namespace teson::data
