#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/teson/child.h"
#include "apps/teson/commands.h"
#include "apps/teson/controller.h"
#include "apps/teson/event_queue.h"
#include "apps/teson/prepare_corpus.h"
#include "apps/teson/resume.h"
#include "apps/teson/run_journal.h"
#include "apps/teson/signals.h"
#include "teson/base/clock.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/job/config.h"
#include "teson/job/inject.h"
#include "teson/job/run_folder.h"
#include "teson/job/summary.h"

namespace teson::apps {
namespace {

constexpr std::size_t kPathBytesMax = 1024;

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::vector<std::string> faults;
  bool start_anew = false;
};

// A signal before the workers run ends the preparation; later ones are the controller's.
struct SignalTarget {
  EventQueue queue;
  std::stop_source preparation;
  Controller* controller = nullptr;  // queue's thread only
};

job::Summary summarize(const RunEnd& end) {
  job::Summary summary;
  summary.status = end.status == RunEnd::Status::completed ? "completed"
                   : end.status == RunEnd::Status::stopped ? "stopped"
                                                           : "failed";
  summary.reason = end.reason;
  if (end.report) {
    summary.val_loss = end.report->val_loss;
    if (summary.val_loss) summary.val_loss_step = end.report->step;
    summary.weights_sha256 = end.report->weights_sha256;
    summary.unigram_entropy = end.report->unigram_entropy;
  }
  return summary;
}

// As it will stand in the folder's config.toml, which must be readable again.
Result<std::string> absolute_path(const std::string& path, const char* key) {
  std::string absolute = std::filesystem::absolute(path).string();
  if (absolute.size() <= kPathBytesMax) return absolute;
  return fail(ErrorKind::invalid, fmt::format("{}: expected a path of at most {} bytes, found one "
                                              "of {}",
                                              key, kPathBytesMax, absolute.size()));
}

// The folder keeps the configuration, and is used from other working folders. Which corpus it was
// is told by its manifest; its names stay as they were given, since they are part of what a run is.
Result<void> make_absolute(job::Config& config) {
  config.run.dir = job::run_dir(config).string();
  const std::pair<std::string*, const char*> paths[] = {{&config.run.dir, "run.dir"},
                                                        {&config.checkpoint.dir, "checkpoint.dir"},
                                                        {&config.data.prepared, "data.prepared"}};
  for (const auto& [path, key] : paths) {
    if (path->empty()) continue;
    TESON_TRY(*path, absolute_path(*path, key));
  }
  return {};
}

// Outside the run's folder they are not moved aside with it, and would be resumed from.
Result<void> refuse_old_checkpoints(const std::filesystem::path& dir) {
  std::error_code code;
  if (dir.empty() || !std::filesystem::exists(dir, code) || std::filesystem::is_empty(dir, code))
    return {};
  return fail(ErrorKind::invalid,
              fmt::format("--start-anew does not move '{}' (checkpoint.dir), which is not empty: "
                          "move it away, or name another",
                          dir.string()));
}

// Whether there is a checkpoint of this step, or of any.
bool has_checkpoint(const job::Config& config, std::optional<std::int64_t> step = std::nullopt) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(job::checkpoint_dir(config), code)) {
    const auto id = parse_checkpoint_name(entry.path().filename().string());
    if (id && (!step || id->step == static_cast<std::uint64_t>(*step))) return true;
  }
  return false;
}

// What a run that has nothing left to do came to; unset where there is something to do.
std::optional<job::Summary> finished_before(const job::Config& config,
                                            const job::RunFolder& folder) {
  if (!folder.existed()) return std::nullopt;
  const auto summary = job::read_summary(folder.paths().summary());
  if (!summary || summary->status != "completed" || summary->steps != config.train.steps)
    return std::nullopt;
  // Without its last checkpoint there is something to do.
  if (!has_checkpoint(config, config.train.steps)) return std::nullopt;
  return *summary;
}

// A few lines of what the model has learnt.
void show_sample(const job::Config& config, const job::RunPaths& paths,
                 const std::filesystem::path& prepared) {
  if (config.train.generate_tokens == 0) return;
  fmt::print("\nthe model continues \"{}\":\n\n", config.train.generate_prompt);
  std::fflush(stdout);
  const auto ended =
      run_child(program_folder() / "teson-worker",
                {"generate", job::checkpoint_dir(config).string(), config.train.generate_prompt,
                 prepared.string(), fmt::format("{}", config.train.generate_tokens), "0.8", "0.95",
                 "0", "1"});
  if (!ended) report(ended.error());
  fmt::print("\nmore of it: {} generate {} --prompt \"…\"\n", (program_folder() / "teson").string(),
             paths.dir.string());
}

void tell_finished(const job::Config& config, const job::Summary& summary,
                   const std::vector<std::string>& unfired) {
  job::Config longer = config;
  longer.train.steps += 1;
  const bool may_go_on = job::config_difference(config, longer).empty();
  tell(fmt::format("this run has done its {} steps. {}o begin from nothing: --start-anew\n",
                   summary.steps, may_go_on ? "To train on, raise train.steps; t" : "T"));
  if (!unfired.empty()) tell(fmt::format("teson: {}\n", job::unfired_text(unfired)));
  fmt::print("{}", job::format_summary(summary));
  std::fflush(stdout);
}

Result<int> train(const Arguments& arguments, job::Config config, SignalTarget& target) {
  if (!arguments.run_dir.empty()) config.run.dir = arguments.run_dir;
  TESON_TRY(const auto faults, job::parse_faults(arguments.faults));
  TESON_TRY_VOID(job::check_faults(faults, config));
  TESON_TRY_VOID(make_absolute(config));
  if (arguments.start_anew) TESON_TRY_VOID(refuse_old_checkpoints(config.checkpoint.dir));
  job::RunFolderOptions folder_options;
  folder_options.start_anew = arguments.start_anew;
  if (const char* secret = std::getenv(kSecretVariable)) folder_options.secret = secret;
  TESON_TRY(auto folder, job::RunFolder::open(config.run.dir, config, folder_options));

  const std::filesystem::path prepared = job::prepared_dir(config);
  auto corpus = prepare_corpus(config, prepared, target.preparation.get_token());
  if (!corpus && corpus.error().kind == ErrorKind::aborted) return kInterrupted;
  if (!corpus) return Failure(corpus.error());
  tell(fmt::format("{}run:    '{}', {} replica{}\n", *corpus, config.run.dir,
                   config.cluster.replicas, config.cluster.replicas == 1 ? "" : "s"));

  const SystemClock clock;
  TESON_TRY(auto journal, RunJournal::open(folder.paths(), config, faults, clock));
  const auto checked = check_checkpoints(config, *journal, target.preparation.get_token());
  if (!checked && checked.error().kind == ErrorKind::aborted) return kInterrupted;
  TESON_TRY_VOID(checked);
  if (const auto summary = finished_before(config, folder)) {
    tell_finished(config, *summary, job::unfired(folder.paths().faults(), faults));
    show_sample(config, folder.paths(), prepared);
    return kDone;
  }

  journal->started(!folder.existed() ? "new" : has_checkpoint(config) ? "resumed" : "repeated");
  RunEnd end;
  {
    Controller controller(config, folder, prepared, faults, *journal, target.queue, clock);
    target.controller = &controller;
    end = controller.run();
    target.controller = nullptr;
  }
  auto summary = summarize(end);
  const auto written = journal->finish(summary);
  fmt::print("{}", job::format_summary(summary));
  std::fflush(stdout);
  if (end.status == RunEnd::Status::failed) {
    if (!written) report(written.error());
    const auto kind = end.users_mistake ? ErrorKind::invalid : ErrorKind::failed;
    return fail(kind, end.reason);
  }
  TESON_TRY_VOID(written);
  if (end.status == RunEnd::Status::stopped) return kInterrupted;
  show_sample(config, folder.paths(), prepared);
  return kDone;
}

int run(const Arguments& arguments) {
  // Before signals are taken: it may come from a pipe, and Ctrl-C must end the wait for that.
  auto config = load_job(arguments.file, arguments.overrides);
  if (!config) return report(config.error());
  SignalTarget target;
  const Signals signals([&target](int signal) {
    if (signal != SIGUSR1) target.preparation.request_stop();
    target.queue.post([&target, signal] {
      if (target.controller != nullptr) target.controller->on_signal(signal);
    });
  });
  const auto status = train(arguments, std::move(*config), target);
  return status ? *status : report(status.error());
}

}  // namespace

void add_train(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("train",
                                     "Train as a configuration says, on this machine. The same "
                                     "command again resumes from the newest checkpoint. Ctrl-C and "
                                     "SIGTERM end at the next step boundary, with a checkpoint; "
                                     "SIGUSR1 takes one and goes on");
  command->add_option("file", arguments->file, "A TOML file (every key: teson config --explain)")
      ->required();
  add_overrides(*command, arguments->overrides);
  command
      ->add_option("--run-dir", arguments->run_dir,
                   "The run's folder; default: run.dir of the file, else runs/NAME")
      ->check([](const std::string& folder) {
        return folder.empty() ? std::string("expected the name of a folder") : std::string();
      });
  command->add_flag("--start-anew", arguments->start_anew,
                    "Move what an earlier run left in the folder aside, and begin from nothing");
  command
      ->add_option(
          "--inject", arguments->faults,
          "Put in a fault: KIND:replica=R,step=S[,phase=compute|reduce|vote|apply|checkpoint] or "
          "KIND:every=DURATION,seed=N[,count=N]; KIND: kill, stop, segfault, exception, hang, nan. "
          "Repeatable")
      ->take_all()
      ->allow_extra_args(false);
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
