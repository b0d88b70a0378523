#include "apps/teson/prepare_corpus.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/teson/commands.h"
#include "teson/base/clock.h"
#include "teson/data/prepare.h"
#include "teson/data/sampler.h"
#include "teson/job/live_line.h"
#include "teson/job/run_folder.h"

namespace teson::apps {
namespace {

// One live line on a terminal, else a plain line for each stage.
class StageLine {
 public:
  void show(const data::PrepareProgress& progress) {
    if (progress.stage == data::PrepareStage::reused ||
        progress.stage == data::PrepareStage::done) {
      reused_ = progress.stage == data::PrepareStage::reused;
      if (terminal_ && shown_) tell("\r\x1b[K");
      return;
    }
    const bool new_stage = !shown_ || progress.stage != stage_;
    stage_ = progress.stage;
    shown_ = true;
    std::string text = fmt::format("preparing the corpus: {}", to_string(progress.stage));
    if (progress.total > 0) text += fmt::format(" {}%", 100 * progress.done / progress.total);
    if (terminal_) {
      tell("\r\x1b[K" + text);
    } else if (new_stage) {
      tell(text + "\n");
    }
  }

  /// Whether the corpus was found prepared.
  bool reused() const { return reused_; }

 private:
  bool terminal_ = job::LiveLine::is_terminal(STDERR_FILENO);
  bool shown_ = false;
  bool reused_ = false;
  data::PrepareStage stage_{};
};

// A line about the files of corpus folders that were passed over; empty for none.
std::string skipped_files(const data::CorpusOptions& corpus) {
  data::SkippedFiles skipped;
  const auto sources = data::list_sources(corpus, &skipped);
  if (!sources || skipped.count == 0) return {};
  return fmt::format("corpus: {} file{} taken, {} skipped that {} no text by name, such as '{}'\n",
                     sources->size(), sources->size() == 1 ? "" : "s", skipped.count,
                     skipped.count == 1 ? "is" : "are", skipped.example);
}

// Too little text is better said here than by every worker.
Result<void> check_size(const job::Config& config, const data::PreparedCorpus& prepared) {
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  const auto& batch = config.batch;
  data::SamplerOptions options;
  options.lanes = number(batch.lanes);
  options.microbatches = number(batch.microbatches);
  options.rows = number(batch.sequences);
  options.sequence_length = number(batch.sequence_length);
  TESON_TRY_VOID(data::Sampler::make(prepared.train(), options));
  if (config.train.evaluate_batches > 0) {
    TESON_TRY_VOID(data::ValidationSet::make(prepared.validation(), options.rows,
                                             options.sequence_length,
                                             number(config.train.evaluate_batches)));
  }
  return {};
}

}  // namespace

Result<std::string> prepare_corpus(const job::Config& config, const std::filesystem::path& folder,
                                   std::stop_token stop) {
  data::PrepareOptions options;
  options.corpus.sources = config.data.corpus;
  options.corpus.json_field = config.data.text_field;
  options.folder = folder;
  options.validation_fraction = config.data.validation_fraction;
  options.vocabulary_size = static_cast<std::uint32_t>(config.data.vocabulary);
  // A folder that was named may be shared; one below a run that has begun holds its tokenizer.
  options.replace =
      config.data.prepared.empty() && !job::has_begun(job::RunPaths{job::run_dir(config)});
  StageLine line;
  TESON_TRY(
      const auto prepared,
      data::prepare(
          options, [&](const data::PrepareProgress& progress) { line.show(progress); }, stop));
  TESON_TRY_VOID(check_size(config, prepared));
  const auto& manifest = prepared.manifest();
  std::string notes;
  if (!line.reused()) notes += skipped_files(options.corpus);
  if (manifest.vocabulary < options.vocabulary_size) {
    notes += fmt::format(
        "vocabulary: {} tokens, not the {} of data.vocabulary: the training text "
        "has nothing left to merge\n",
        manifest.vocabulary, options.vocabulary_size);
  }
  return notes +
         fmt::format(
             "corpus: {} documents, {} training tokens, {} validation tokens, vocabulary {}\n"
             "        entropy of the training tokens' frequencies: {:.4f} nats a token\n",
             manifest.counts.documents,
             job::format_count(static_cast<double>(manifest.train.tokens)),
             job::format_count(static_cast<double>(manifest.validation.tokens)),
             manifest.vocabulary, manifest.train_entropy);
}

}  // namespace teson::apps
