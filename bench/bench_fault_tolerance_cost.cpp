// What fault tolerance costs while nothing fails: pairs of runs with and without it (no quorum, no
// vote, no fencing), the same replica groups, lanes and threads, taken in turn. A run's figure is
// the median time between commits, the first steps left out.

#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "bench/train_run.h"

using namespace teson::bench;

namespace {

teson::Result<double> step_ms(std::vector<std::string> settings, bool fault_tolerance) {
  settings.push_back(fmt::format("cluster.fault_tolerance={}", fault_tolerance));
  TrainRun run;
  TESON_TRY_VOID(run.run(settings));
  std::vector<double> seconds;
  for (const auto& line : run.metrics()) {
    if (line["step"] > 10) seconds.push_back(1000 * line["seconds"].get<double>());
  }
  return quantile_of(seconds, 0.5);
}

int compare(bool json, const std::string& name, const std::vector<std::string>& settings,
            int rounds) {
  std::vector<double> with, without, ratios, differences;
  for (int round = 0; round < rounds; ++round) {
    // Alternate which comes first, so that a drift of the machine does not favour one.
    for (const bool fault_tolerance : {round % 2 == 0, round % 2 != 0}) {
      const auto ms = step_ms(settings, fault_tolerance);
      if (!ms) {
        fmt::print(stderr, "{}\n", ms.error().message);
        return 1;
      }
      (fault_tolerance ? with : without).push_back(*ms);
    }
    ratios.push_back(100 * (with.back() / without.back() - 1));
    differences.push_back(with.back() - without.back());
  }
  print_figure(json, name + ".with.step_p50_ms", quantile_of(with, 0.5), "ms");
  print_figure(json, name + ".without.step_p50_ms", quantile_of(without, 0.5), "ms");
  print_figure(json, name + ".cost.median_percent", quantile_of(ratios, 0.5), "%");
  print_figure(json, name + ".cost.min_percent", quantile_of(ratios, 0), "%");
  print_figure(json, name + ".cost.max_percent", quantile_of(ratios, 1), "%");
  print_figure(json, name + ".cost.fixed_ms", quantile_of(differences, 0.5), "ms");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = has_flag(argc, argv, "--json");
  const bool quick = has_flag(argc, argv, "--quick");
  const int rounds = quick ? 3 : 15;
  const int steps = 60;
  if (compare(json, "fault_tolerance.3_groups", comparison_settings(3, steps), rounds) != 0)
    return 1;
  return compare(json, "fault_tolerance.2_groups", comparison_settings(2, steps), rounds);
}
