// Kill to next commit, and spawn to rejoin, over random SIGKILLs of one of three replica groups (a
// model of about 3 M parameters).
//
// The commit figure is from the kill to the first commit without the dead rank. It contains what
// must be computed again: survivors end the lane they are at and compute the dead rank's. `beyond`
// is the same less the median time of a step with two members in the same run, which is at least
// what that recomputation takes: so `beyond` is a lower bound of what is not recomputation, and
// kill_to_commit itself an upper one.

#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "bench/train_run.h"

using namespace teson::bench;

int main(int argc, char** argv) {
  const bool json = has_flag(argc, argv, "--json");
  const int kills = has_flag(argc, argv, "--quick") ? 5 : 30;
  TrainRun run;
  // A kill each 4 s, and enough steps for all of them: a step is about 0.13 s on two cores.
  const auto done = run.run(comparison_settings(3, kills * 45),
                            {fmt::format("kill:every=4s,seed=1,count={}", kills)});
  if (!done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  std::vector<double> alone, whole;
  for (const auto& line : run.metrics())
    (line["replicas"] == 2 ? alone : whole).push_back(1000 * line["seconds"].get<double>());
  const double step_of_two = quantile_of(alone, 0.5);
  std::vector<double> commit, beyond, rejoin, detect, reconfigure;
  const auto summary = run.summary();
  for (const auto& failure : summary["failures"]) {
    if (failure["detect_ms"].is_null() || failure["commit_ms"].is_null()) continue;
    detect.push_back(failure["detect_ms"]);
    if (!failure["reconfigure_ms"].is_null()) reconfigure.push_back(failure["reconfigure_ms"]);
    commit.push_back(failure["detect_ms"].get<double>() + failure["commit_ms"].get<double>());
    beyond.push_back(std::max(0.0, commit.back() - step_of_two));
    if (!failure["rejoin_ms"].is_null()) rejoin.push_back(failure["rejoin_ms"]);
  }
  print_figure(json, "recovery.kills", static_cast<double>(commit.size()), "count");
  print_figure(json, "recovery.steps_lost", summary["steps_lost"], "count");
  for (const auto& [name, values] : {std::pair{"detect", detect},
                                     {"detect_to_start", reconfigure},
                                     {"kill_to_commit", commit},
                                     {"kill_to_commit_beyond_recomputation", beyond},
                                     {"spawn_to_rejoin", rejoin}}) {
    print_figure(json, fmt::format("recovery.{}.p50_ms", name), quantile_of(values, 0.5), "ms");
    print_figure(json, fmt::format("recovery.{}.max_ms", name), quantile_of(values, 1), "ms");
  }
  print_figure(json, "recovery.step_of_three.p50_ms", quantile_of(whole, 0.5), "ms");
  print_figure(json, "recovery.step_of_two.p50_ms", step_of_two, "ms");
  return 0;
}
