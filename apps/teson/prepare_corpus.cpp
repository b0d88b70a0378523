#include "apps/teson/prepare_corpus.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/teson/commands.h"
#include "teson/base/clock.h"
#include "teson/data/prepare.h"
#include "teson/data/sampler.h"
#include "teson/job/live_line.h"

namespace teson::apps {
namespace {

// One live line on a terminal, else a plain line for each stage.
class StageLine {
 public:
  void show(const data::PrepareProgress& progress) {
    if (progress.stage == data::PrepareStage::reused ||
        progress.stage == data::PrepareStage::done) {
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

 private:
  bool terminal_ = job::LiveLine::is_terminal(STDERR_FILENO);
  bool shown_ = false;
  data::PrepareStage stage_{};
};

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
  StageLine line;
  TESON_TRY(
      const auto prepared,
      data::prepare(
          options, [&](const data::PrepareProgress& progress) { line.show(progress); }, stop));
  TESON_TRY_VOID(check_size(config, prepared));
  const auto& manifest = prepared.manifest();
  return fmt::format(
      "corpus: {} documents, {} training tokens, {} validation tokens, vocabulary {}\n"
      "        entropy of the training tokens' frequencies: {:.4f} nats a token\n",
      manifest.counts.documents, job::format_count(static_cast<double>(manifest.train.tokens)),
      job::format_count(static_cast<double>(manifest.validation.tokens)), manifest.vocabulary,
      manifest.train_entropy);
}

}  // namespace teson::apps
