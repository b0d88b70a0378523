#include "teson/data/prepare.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/data/folder_lock.h"
#include "teson/data/prepared_files.h"
#include "teson/data/spool.h"
#include "teson/data/text_reader.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kBytesBetweenProgress = 4 << 20;
/// For somebody who only looks into the folder; a job that uses it stays longer.
constexpr std::chrono::seconds kPatience{1};

Result<void> check_options(const PrepareOptions& options) {
  if (!(options.validation_fraction >= 0 && options.validation_fraction <= 0.5)) {
    return fail(ErrorKind::invalid,
                fmt::format("the validation fraction must be 0 to 0.5, found {}",
                            options.validation_fraction));
  }
  if (options.shard_tokens_max == 0)
    return fail(ErrorKind::invalid, "a shard must hold at least one token");
  if (options.folder.empty()) return fail(ErrorKind::invalid, "no folder to prepare the corpus in");
  if (options.tokenizer.empty() && options.vocabulary_size < 256 + options.specials.size()) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "a vocabulary of {} tokens: expected at least {}, 256 bytes and {} special tokens",
            options.vocabulary_size, 256 + options.specials.size(), options.specials.size()));
  }
  return {};
}

/// Everything but the sources that bears on the tokens written.
Result<std::string> settings_digest(const PrepareOptions& options) {
  Sha256 digest;
  const CorpusOptions& corpus = options.corpus;
  digest.update(fmt::format("teson corpus settings 1\n{}\n{}:{}\n{}:{}\n{} {}\n{:a} {}\n",
                            kSplitPattern, corpus.json_field.size(), corpus.json_field,
                            corpus.separator.size(), corpus.separator, corpus.document_bytes_max,
                            corpus.json_line_bytes_max, options.validation_fraction,
                            options.shard_tokens_max));
  if (options.tokenizer.empty()) {
    digest.update(
        fmt::format("learn {} from {}\n", options.vocabulary_size, options.learn_bytes_max));
    for (const std::string& name : options.specials)
      digest.update(fmt::format("{}:{}\n", name.size(), name));
  } else {
    TESON_TRY(const Tokenizer tokenizer, Tokenizer::load(options.tokenizer));
    digest.update(tokenizer.fingerprint());
  }
  return digest.finish();
}

Result<std::string> sha256_of(const Source& source) {
  TESON_TRY(TextReader reader, TextReader::open(source, false));
  while (true) {
    TESON_TRY(const std::string_view piece, reader.next());
    if (piece.empty()) return reader.sha256();
  }
}

bool same_sources(const std::vector<CorpusManifest::SourceEntry>& prepared,
                  const std::vector<Source>& found) {
  if (prepared.size() != found.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (prepared[i].source.path != found[i].path || prepared[i].source.bytes != found[i].bytes)
      return false;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (prepared[i].source.modified_ns == found[i].modified_ns) continue;
    const auto sha256 = sha256_of(found[i]);
    if (!sha256 || *sha256 != prepared[i].sha256) return false;
  }
  return true;
}

/// Entropy of a frequency table, in nats.
double entropy_of(const std::vector<std::uint64_t>& counts) {
  double total = 0, sum = 0;
  for (const std::uint64_t count : counts)
    total += static_cast<double>(count);
  if (total == 0) return 0;
  for (const std::uint64_t count : counts) {
    const double p = static_cast<double>(count) / total;
    if (count > 0) sum -= p * std::log(p);
  }
  return sum;
}

/// What the folder holds other than is asked for, for people.
std::string difference_of(const CorpusManifest& manifest, const PrepareOptions& options,
                          const std::vector<Source>& sources, const std::string& settings) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  const auto& prepared = manifest.sources;
  const auto differs = [&](std::size_t i) {
    return i >= prepared.size() || i >= sources.size() ||
           prepared[i].source.path != sources[i].path;
  };
  const std::size_t count = std::max(prepared.size(), sources.size());
  std::size_t first = 0;
  while (first < count && !differs(first))
    ++first;
  if (first < count) {
    const auto named = [](const std::string& path) { return fmt::format("'{}'", path); };
    add(fmt::format(
        "it is made from {}, and {} asked for",
        first < prepared.size() ? named(prepared[first].source.path) : "fewer files",
        first < sources.size() ? named(sources[first].path) + " is" : "fewer files are"));
  } else if (!same_sources(prepared, sources)) {
    add("the files of the corpus have changed since");
  }
  if (manifest.settings != settings) {
    const bool other_size =
        options.tokenizer.empty() && manifest.vocabulary != options.vocabulary_size;
    add(other_size ? fmt::format("its settings of [data] are others: a vocabulary of {} tokens, "
                                 "and {} are asked for",
                                 manifest.vocabulary, options.vocabulary_size)
                   : "its settings of [data] are others");
  }
  return text;
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const PrepareProgressFn& progress,
              std::stop_token stop, std::vector<Source> sources, std::string settings)
      : options_(options),
        progress_(progress),
        stop_(std::move(stop)),
        sources_(std::move(sources)) {
    manifest_.settings = std::move(settings);
  }

  /// Everything up to the manifest, which is written last.
  Result<void> run() {
    TESON_TRY(Spool spool, Spool::make(options_.folder));
    TESON_TRY_VOID(read(spool));
    TESON_TRY(const Tokenizer tokenizer,
              options_.tokenizer.empty() ? learn(spool) : Tokenizer::load(options_.tokenizer));
    manifest_.tokenizer = tokenizer.fingerprint();
    manifest_.vocabulary = tokenizer.vocabulary_size();
    TESON_TRY_VOID(remove_old_files());
    TESON_TRY_VOID(tokenizer.save(options_.folder / kTokenizerFile));
    TESON_TRY_VOID(encode(spool, tokenizer));
    return write_file_atomic(options_.folder / kManifestFile, encode_manifest(manifest_));
  }

 private:
  Result<void> remove_old_files() {
    const auto remove = [](const fs::path& path) -> Result<void> {
      if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
      return fail_errno(fmt::format("remove '{}'", path.string()), errno);
    };
    // The manifest first, durably: without it the rest is nothing.
    TESON_TRY_VOID(remove(options_.folder / kManifestFile));
    TESON_TRY_VOID(sync_folder(options_.folder));
    std::error_code code;
    std::vector<fs::path> stale;
    for (fs::directory_iterator at(options_.folder, code); !code && at != fs::directory_iterator();
         at.increment(code)) {
      const std::string name = at->path().filename().string();
      const bool shard = (name.starts_with("train-") || name.starts_with("validation-")) &&
                         name.ends_with(kShardSuffix);
      const bool torn = name.starts_with(std::string(kManifestFile) + ".tmp-") ||
                        name.starts_with(std::string(kTokenizerFile) + ".tmp-");
      if (shard || torn) stale.push_back(at->path());
    }
    if (code) return fail_errno(fmt::format("list '{}'", options_.folder.string()), code.value());
    for (const fs::path& path : stale)
      TESON_TRY_VOID(remove(path));
    return {};
  }

  Result<void> read(Spool& spool) {
    std::uint64_t total = 0;
    for (const Source& source : sources_)
      total += source.path == kBuiltinTiny ? 0 : source.bytes;
    begin(PrepareStage::reading, total);
    const auto take = [&](std::string_view text) -> Result<void> {
      documents_.push_back({hash_document(text), text.size()});
      TESON_TRY_VOID(spool.append(text));
      return advance(text.size());
    };
    const auto done = [&](const Source& source, const std::string& sha256) {
      manifest_.sources.push_back({source, sha256});
    };
    TESON_TRY(manifest_.counts, read_documents(options_.corpus, sources_, take, done));
    rule_ = split_rule(documents_, options_.validation_fraction);
    return {};
  }

  /// Every document, or part of one, with its split.
  Result<void> for_each(Spool& spool, PrepareStage stage,
                        const std::function<Result<void>(std::string_view text, const DocumentSize&,
                                                         bool validation)>& take) {
    begin(stage, manifest_.counts.bytes);
    std::size_t next = 0;
    return spool.for_each([&](std::string_view text) -> Result<void> {
      const DocumentSize& document = documents_[next++];
      if (documents_.size() == 1 && options_.validation_fraction > 0) {
        const std::size_t cut = split_point(text, options_.validation_fraction);
        if (cut > 0) TESON_TRY_VOID(take(text.substr(0, cut), document, false));
        if (cut < text.size()) TESON_TRY_VOID(take(text.substr(cut), document, true));
      } else {
        TESON_TRY_VOID(take(text, document, rule_.is_validation(document.hash)));
      }
      return advance(text.size());
    });
  }

  Result<Tokenizer> learn(Spool& spool) {
    BpeLearner learner;
    const double share =
        static_cast<double>(options_.learn_bytes_max) / static_cast<double>(manifest_.counts.bytes);
    TESON_TRY_VOID(for_each(
        spool, PrepareStage::counting,
        [&](std::string_view text, const DocumentSize& document, bool validation) {
          const bool chosen =
              share >= 1 || std::ldexp(static_cast<double>(document.hash.other), -64) < share;
          if (!validation && chosen) learner.add(text);
          return Result<void>{};
        }));
    begin(PrepareStage::learning, 0);
    return learner.learn(
        options_.vocabulary_size, options_.specials, [&](const LearnProgress& now) {
          if (progress_) progress_({PrepareStage::learning, now.merges_done, now.merges_planned});
          return !stop_.stop_requested();
        });
  }

  Result<void> encode(Spool& spool, const Tokenizer& tokenizer) {
    ShardWriter train(options_.folder, "train", tokenizer, options_.shard_tokens_max);
    ShardWriter validation(options_.folder, "validation", tokenizer, options_.shard_tokens_max);
    Encoder encoder(tokenizer);
    std::vector<TokenId> ids;
    std::vector<std::uint64_t> frequency(tokenizer.vocabulary_size());
    TESON_TRY_VOID(for_each(spool, PrepareStage::encoding,
                            [&](std::string_view text, const DocumentSize&, bool to_validation) {
                              ids.clear();
                              encoder.encode(text, ids);
                              ids.push_back(tokenizer.end_of_text());
                              CorpusManifest::SplitEntry& split =
                                  to_validation ? manifest_.validation : manifest_.train;
                              ++split.documents;
                              split.bytes += text.size();
                              split.tokens += ids.size();
                              if (to_validation) return validation.append(ids);
                              for (const TokenId id : ids)
                                ++frequency[id];
                              return train.append(ids);
                            }));
    TESON_TRY(manifest_.train.shards, train.finish());
    TESON_TRY(manifest_.validation.shards, validation.finish());
    manifest_.train_entropy = entropy_of(frequency);
    return {};
  }

  void begin(PrepareStage stage, std::uint64_t total) {
    now_ = {stage, 0, total};
    reported_ = 0;
    if (progress_) progress_(now_);
  }

  Result<void> advance(std::uint64_t bytes) {
    now_.done += bytes;
    if (progress_ && now_.done - reported_ >= kBytesBetweenProgress) {
      reported_ = now_.done;
      progress_(now_);
    }
    if (stop_.stop_requested())
      return fail(ErrorKind::aborted,
                  "preparing the corpus was stopped; the next run begins it again");
    return {};
  }

  const PrepareOptions& options_;
  const PrepareProgressFn& progress_;
  std::stop_token stop_;
  std::vector<Source> sources_;
  CorpusManifest manifest_;
  std::vector<DocumentSize> documents_;  ///< in the order of the spool
  SplitRule rule_;
  PrepareProgress now_;
  std::uint64_t reported_ = 0;
};

void report(const PrepareProgressFn& progress, PrepareStage stage) {
  if (progress) progress({stage, 0, 0});
}

}  // namespace

std::string_view to_string(PrepareStage stage) {
  switch (stage) {
    case PrepareStage::waiting:
      return "waiting";
    case PrepareStage::reading:
      return "reading";
    case PrepareStage::counting:
      return "counting";
    case PrepareStage::learning:
      return "learning";
    case PrepareStage::encoding:
      return "encoding";
    case PrepareStage::reused:
      return "reused";
    case PrepareStage::done:
      return "done";
  }
  return "unknown";
}

Result<PreparedCorpus> prepare(const PrepareOptions& options, const PrepareProgressFn& progress,
                               std::stop_token stop) {
  TESON_TRY_VOID(check_options(options));
  TESON_TRY(std::vector<Source> sources, list_sources(options.corpus));
  TESON_TRY(const std::string settings, settings_digest(options));
  const auto reusable = [&]() -> Result<std::optional<PreparedCorpus>> {
    auto corpus = open_prepared(options.folder);
    // Without descriptors or memory nothing is known of the folder.
    if (!corpus && corpus.error().kind == ErrorKind::overloaded) return fail(corpus.error());
    if (!corpus || corpus->manifest().settings != settings) return std::nullopt;
    if (!same_sources(corpus->manifest().sources, sources)) return std::nullopt;
    report(progress, PrepareStage::reused);
    return std::move(*corpus);
  };
  TESON_TRY(auto ready, reusable());
  if (ready) return std::move(*ready);
  TESON_TRY_VOID(make_folders(options.folder));
  TESON_TRY(const FolderLock preparing,
            FolderLock::exclusive(options.folder / kPrepareLockFile, stop,
                                  [&] { report(progress, PrepareStage::waiting); }));
  TESON_TRY(ready, reusable());
  if (ready) return std::move(*ready);  // another process was quicker
  if (!options.replace) {
    if (const auto held = open_prepared(options.folder)) {
      return fail(ErrorKind::invalid,
                  fmt::format("'{}' holds another corpus, which other runs may need: {}. Name "
                              "another folder (data.prepared), or remove this one and what was "
                              "trained from it",
                              options.folder.string(),
                              difference_of(held->manifest(), options, sources, settings)));
    }
  }
  {
    auto alone = FolderLock::exclusive_within(options.folder / kUseLockFile, kPatience, stop);
    if (!alone && alone.error().kind == ErrorKind::timed_out) {
      return fail(ErrorKind::failed,
                  fmt::format("'{}' holds a corpus of other settings or sources, and a living job "
                              "uses it; end that job or choose "
                              "another folder (data.prepared)",
                              options.folder.string()));
    }
    if (!alone) return fail(alone.error());
    TESON_TRY_VOID(Preparation(options, progress, stop, std::move(sources), settings).run());
  }
  report(progress, PrepareStage::done);
  return open_prepared(options.folder);
}

}  // namespace teson::data
