#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/data/folder_lock.h"
#include "teson/data/prepare.h"
#include "teson/data/prepared_files.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kManifestBytesMax = 1 << 30;

std::string fingerprint_of(const CorpusManifest& manifest) {
  Sha256 digest;
  digest.update(fmt::format("teson corpus 1\n{}\n", manifest.tokenizer));
  for (const auto* split : {&manifest.train, &manifest.validation}) {
    digest.update(fmt::format("{} tokens\n", split->tokens));
    for (const ShardEntry& shard : split->shards)
      digest.update(fmt::format("{} {:016x}\n", shard.tokens, shard.checksum));
  }
  return digest.finish();
}

}  // namespace

struct PreparedCorpus::State {
  fs::path folder;
  FolderLock lock;
  CorpusManifest manifest;
  Tokenizer tokenizer;
  TokenStream train, validation;
  std::string fingerprint;
};

const fs::path& PreparedCorpus::folder() const {
  return state_->folder;
}
const CorpusManifest& PreparedCorpus::manifest() const {
  return state_->manifest;
}
const Tokenizer& PreparedCorpus::tokenizer() const {
  return state_->tokenizer;
}
const TokenStream& PreparedCorpus::train() const {
  return state_->train;
}
const TokenStream& PreparedCorpus::validation() const {
  return state_->validation;
}
const std::string& PreparedCorpus::fingerprint() const {
  return state_->fingerprint;
}

Result<PreparedCorpus> open_prepared(const fs::path& folder, TokenStream::Verify verify) {
  const fs::path path = folder / kManifestFile;
  if (::access(path.c_str(), F_OK) != 0) {
    return fail(ErrorKind::invalid,
                fmt::format("'{}' holds no prepared corpus: there is no {}; prepare it first",
                            folder.string(), kManifestFile));
  }
  auto lock = FolderLock::try_shared(folder / kUseLockFile);
  if (!lock)
    return fail(
        lock.error().in(fmt::format("the corpus in '{}' is being prepared anew", folder.string())));
  TESON_TRY(const std::string text, read_file(path, kManifestBytesMax));
  TESON_TRY(CorpusManifest manifest, decode_manifest(text, path.string()));
  TESON_TRY(Tokenizer tokenizer, Tokenizer::load(folder / kTokenizerFile));
  if (tokenizer.fingerprint() != manifest.tokenizer ||
      tokenizer.vocabulary_size() != manifest.vocabulary) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "'{}' is not the tokenizer that the corpus beside it was prepared with; prepare "
            "the corpus again",
            (folder / kTokenizerFile).string()));
  }
  TESON_TRY(TokenStream train,
            TokenStream::open(folder, manifest.train.shards, manifest.tokenizer, verify));
  TESON_TRY(TokenStream validation,
            TokenStream::open(folder, manifest.validation.shards, manifest.tokenizer, verify));
  std::string fingerprint = fingerprint_of(manifest);
  return PreparedCorpus(std::make_shared<PreparedCorpus::State>(
      PreparedCorpus::State{folder, std::move(*lock), std::move(manifest), std::move(tokenizer),
                            std::move(train), std::move(validation), std::move(fingerprint)}));
}

}  // namespace teson::data
