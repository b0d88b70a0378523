#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "teson/base/error.h"
#include "teson/base/random.h"

extern char** environ;

namespace teson::bench {

/// A run of `teson train` in a folder of its own, which goes with this object.
class TrainRun {
 public:
  TrainRun()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("teson-bench-{:016x}", entropy64())) {
    std::filesystem::create_directories(folder_);
  }
  TrainRun(const TrainRun&) = delete;
  TrainRun& operator=(const TrainRun&) = delete;
  ~TrainRun() {
    std::error_code code;
    std::filesystem::remove_all(folder_, code);
  }

  /// Runs it to its end with the defaults of the configuration and `settings` as --set, `faults` as
  /// --inject.
  Result<void> run(const std::vector<std::string>& settings,
                   const std::vector<std::string>& faults = {}) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string config = (folder_ / "config.toml").string();
    std::ofstream(config) << "[run]\nname = \"bench\"\n";
    std::vector<std::string> words{(self.parent_path() / "teson").string(), "train", config,
                                   "--run-dir", (folder_ / "run").string()};
    for (const auto& setting : settings)
      words.insert(words.end(), {"--set", setting});
    for (const auto& fault : faults)
      words.insert(words.end(), {"--inject", fault});
    std::vector<char*> argv;
    for (auto& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const std::string output = (folder_ / "output").string();
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t pid = 0;
    const int code = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (code != 0) return fail_errno(fmt::format("start '{}'", words[0]), code);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    std::ifstream text(output);
    return fail(ErrorKind::failed,
                "teson train failed:\n" + std::string(std::istreambuf_iterator<char>(text), {}));
  }

  nlohmann::json summary() const {
    std::ifstream file(folder_ / "run" / "summary.json");
    return nlohmann::json::parse(file);
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ / "run" / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

 private:
  std::filesystem::path folder_;
};

/// The work of the benchmarks: a model of about 3 M parameters, 2 sequences of 64
/// tokens a replica group and step.
inline std::vector<std::string> comparison_settings(int replicas, int steps) {
  return {"model.preset=small-3m",
          "data.vocabulary=1024",
          fmt::format("batch.lanes={}", replicas),
          "batch.sequences=2",
          "batch.sequence_length=64",
          fmt::format("cluster.replicas={}", replicas),
          fmt::format("train.steps={}", steps),
          "train.evaluate_batches=0",
          "optimizer.learning_rate=1e-3",
          "optimizer.schedule=wsd",
          "train.threads=1"};
}

}  // namespace teson::bench
