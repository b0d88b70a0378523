#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/data/bpe.h"
#include "teson/data/corpus.h"
#include "teson/data/token_shards.h"

namespace teson::data {

struct PrepareOptions {
  CorpusOptions corpus;
  /// Where tokenizer, token shards and manifest go. Made if missing. Other files in it are left
  /// alone.
  std::filesystem::path folder;
  double validation_fraction = 0.05;  ///< of documents, 0 to 0.5; see split_rule
  std::uint32_t vocabulary_size =
      4096;  ///< tokens, bytes and specials included; at least 256 + specials
  std::vector<std::string> specials = {std::string(kEndOfText)};
  /// An existing tokenizer to use in place of learning one; vocabulary_size and specials are then
  /// ignored.
  std::filesystem::path tokenizer;
  /// The tokenizer learns from at most about so many bytes of the training split, documents chosen
  /// by their hash.
  std::uint64_t learn_bytes_max = 256ULL << 20;
  std::uint64_t shard_tokens_max = 1ULL << 26;
  /// Whether a corpus of other settings or sources that the folder holds may be replaced.
  bool replace = true;
};

enum class PrepareStage : std::uint8_t {
  waiting,
  reading,
  counting,
  learning,
  encoding,
  reused,
  done
};
std::string_view to_string(PrepareStage stage);

struct PrepareProgress {
  PrepareStage stage = PrepareStage::reading;
  std::uint64_t done = 0;   ///< bytes; merges while learning
  std::uint64_t total = 0;  ///< 0: not known
};
/// Called on the caller's thread at the beginning of each stage, then about every 4 MiB, every 100
/// merges or every 50 ms of waiting.
using PrepareProgressFn = std::function<void(const PrepareProgress&)>;

/// The manifest of a prepared corpus (docs/formats/tokens.md).
struct CorpusManifest {
  struct SourceEntry {
    Source source;
    std::string sha256;
    bool operator==(const SourceEntry&) const = default;
  };
  struct SplitEntry {
    std::uint64_t documents = 0;
    std::uint64_t bytes = 0;   ///< of text
    std::uint64_t tokens = 0;  ///< an end-of-text token after each document included
    std::vector<ShardEntry> shards;
    bool operator==(const SplitEntry&) const = default;
  };
  std::string settings;   ///< digest of everything in PrepareOptions that bears on the result, but
                          ///< for the sources
  std::string tokenizer;  ///< fingerprint
  std::uint64_t vocabulary = 0;
  std::vector<SourceEntry> sources;
  CorpusCounts counts;
  SplitEntry train, validation;
  /// Entropy of the token frequencies of the training split, in nats a token: the loss of the best
  /// model without context.
  double train_entropy = 0;
  bool operator==(const CorpusManifest&) const = default;
};
std::string encode_manifest(const CorpusManifest& manifest);
/// Strict: `invalid`, naming `name`, for anything that encode_manifest does not write, a wrong
/// checksum included.
Result<CorpusManifest> decode_manifest(std::string_view json, std::string_view name);

/// A corpus ready to be sampled. Holds its files open and a shared lock on the folder, so that
/// nobody prepares it anew under a running job. Copies share. Threads: any.
class PreparedCorpus {
 public:
  const std::filesystem::path& folder() const;
  const CorpusManifest& manifest() const;
  const Tokenizer& tokenizer() const;
  const TokenStream& train() const;
  const TokenStream& validation() const;
  /// Digest of tokenizer and all tokens, independent of paths and times, hexadecimal: replicas
  /// whose corpora agree have the same.
  const std::string& fingerprint() const;

 private:
  friend Result<PreparedCorpus> open_prepared(const std::filesystem::path&, TokenStream::Verify);
  struct State;
  explicit PreparedCorpus(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Opens what `prepare` made; for workers. `invalid` if there is no manifest (the preparation did
/// not finish), or if any file is missing, cut short or of another preparation, naming it;
/// `aborted` while it is being prepared anew.
Result<PreparedCorpus> open_prepared(const std::filesystem::path& folder,
                                     TokenStream::Verify verify = TokenStream::Verify::sizes);

/// Reads, strips, de-duplicates, splits, learns a tokenizer, writes token shards and, last, the
/// manifest. A folder already prepared with the same settings from the same sources is reused at
/// once; the same means equal path and size, and equal time or else equal contents. Anything else
/// in its place is replaced, unless `replace` is off (`invalid`, the difference named) or a living
/// job has it open (`failed`; choose another folder). An
/// interrupted preparation leaves no manifest, and the next one begins anew. Several processes may
/// prepare one folder at once: one works, the others wait for it and reuse. `stop` ends it at the
/// next document (`aborted`). Memory: see read_documents, plus the counts of distinct pieces. Disk:
/// the text once more while it works, then 2 or 4 bytes a token.
Result<PreparedCorpus> prepare(const PrepareOptions& options,
                               const PrepareProgressFn& progress = {}, std::stop_token stop = {});

}  // namespace teson::data
