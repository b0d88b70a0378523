#include "teson/data/bpe.h"

#include <unordered_set>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/data/bpe_tables.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

Result<void> check_specials(const std::vector<std::string>& specials) {
  if (specials.size() > kSpecialsMax) {
    return fail(ErrorKind::invalid, fmt::format("{} special tokens, at most {} are allowed",
                                                specials.size(), kSpecialsMax));
  }
  std::unordered_set<std::string> seen;
  for (const std::string& name : specials) {
    if (name.empty() || name.size() > kTokenBytesMax || valid_utf8_prefix(name) != name.size()) {
      return fail(ErrorKind::invalid,
                  fmt::format("a special token must be 1 to {} bytes of UTF-8", kTokenBytesMax));
    }
    if (!seen.insert(name).second)
      return fail(ErrorKind::invalid, fmt::format("special token '{}' occurs twice", name));
  }
  if (!seen.contains(std::string(kEndOfText))) {
    return fail(ErrorKind::invalid, fmt::format("the special tokens lack '{}'", kEndOfText));
  }
  return {};
}

/// Over numbers rather than the file's text, so that the layout of the file is free to change.
std::string fingerprint_of(const BpeModel& model) {
  Sha256 digest;
  digest.update(fmt::format("teson bpe 1\n{}\n{}\n", kSplitPattern, model.merges.size()));
  for (const auto& [left, right] : model.merges)
    digest.update(fmt::format("{} {}\n", left, right));
  for (const std::string& name : model.specials)
    digest.update(fmt::format("{}:{}\n", name.size(), name));
  return digest.finish();
}

}  // namespace

Result<Tokenizer> Tokenizer::make(BpeModel model) {
  TESON_TRY_VOID(check_specials(model.specials));
  if (256 + model.merges.size() + model.specials.size() > kVocabularyMax) {
    return fail(ErrorKind::invalid,
                fmt::format("{} merges are more than a vocabulary of {} tokens holds",
                            model.merges.size(), kVocabularyMax));
  }
  auto tables = std::make_shared<Tables>();
  std::unordered_set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    tables->bytes.emplace_back(1, static_cast<char>(byte));
    seen.insert(tables->bytes.back());
  }
  for (const auto& [left, right] : model.merges) {
    const std::size_t next = tables->bytes.size();
    const std::size_t number = next - 256;
    if (left >= next || right >= next) {
      return fail(ErrorKind::invalid,
                  fmt::format("merge {} joins tokens {} and {}, but only {} exist before it",
                              number, left, right, next));
    }
    std::string bytes = tables->bytes[left] + tables->bytes[right];
    if (bytes.size() > kTokenBytesMax) {
      return fail(ErrorKind::invalid,
                  fmt::format("merge {} makes a token of {} bytes, at most {} are allowed", number,
                              bytes.size(), kTokenBytesMax));
    }
    if (!seen.insert(bytes).second) {
      return fail(ErrorKind::invalid,
                  fmt::format("merge {} makes a token that exists already", number));
    }
    tables->merge_of.emplace(pair_key(left, right), static_cast<TokenId>(next));
    tables->bytes.push_back(std::move(bytes));
  }
  for (const std::string& name : model.specials) {
    if (name == kEndOfText) tables->end_of_text = static_cast<TokenId>(tables->bytes.size());
    tables->bytes.push_back(name);
  }
  tables->fingerprint = fingerprint_of(model);
  tables->model = std::move(model);
  return Tokenizer(std::move(tables));
}

std::size_t Tokenizer::vocabulary_size() const {
  return tables_->bytes.size();
}
const BpeModel& Tokenizer::model() const {
  return tables_->model;
}
TokenId Tokenizer::end_of_text() const {
  return tables_->end_of_text;
}
const std::string& Tokenizer::fingerprint() const {
  return tables_->fingerprint;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  TESON_CHECK(id < tables_->bytes.size(), id, tables_->bytes.size());
  return tables_->bytes[id];
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= tables_->ordinary() && id < tables_->bytes.size();
}

std::optional<TokenId> Tokenizer::find_special(std::string_view name) const {
  for (std::size_t id = tables_->ordinary(); id < tables_->bytes.size(); ++id) {
    if (tables_->bytes[id] == name) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  Encoder(*this).encode(text, ids);
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id >= tables_->bytes.size()) {
      return fail(ErrorKind::invalid, fmt::format("token {} is outside the vocabulary of {} tokens",
                                                  id, tables_->bytes.size()));
    }
    text += tables_->bytes[id];
  }
  return text;
}

}  // namespace teson::data
