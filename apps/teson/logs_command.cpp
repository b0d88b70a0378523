#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/admin_client.h"
#include "apps/teson/commands.h"
#include "apps/teson/log_files.h"
#include "apps/teson/number_range.h"
#include "teson/job/run_folder.h"

namespace teson::apps {
namespace {

using namespace std::chrono_literals;

/// How often it is looked for more, and whether the run still goes on.
constexpr Duration kFollowInterval = 100ms;
constexpr int kRunLookEvery = 10;
constexpr std::size_t kTailMax = 1'000'000;
constexpr std::string_view kWorkerLog = "worker-";

struct Arguments {
  std::string run;
  std::vector<int> ranks;
  bool follow = false;
  std::size_t tail = kTailMax;
};

/// The rank whose log this is.
std::optional<int> rank_of(const std::string& stem) {
  int rank = 0;
  const char* end = stem.data() + stem.size();
  if (!stem.starts_with(kWorkerLog)) return std::nullopt;
  const auto read = std::from_chars(stem.data() + kWorkerLog.size(), end, rank);
  return read.ec == std::errc() && read.ptr == end ? std::optional(rank) : std::nullopt;
}

/// The logs that are wanted: those of the ranks by number, then the others by name.
Result<std::vector<LogFile>> open_logs(const Arguments& arguments) {
  const job::RunPaths paths{arguments.run};
  std::vector<std::pair<int, std::string>> ranks;
  std::vector<std::string> others;
  std::error_code code;
  for (std::filesystem::directory_iterator entry(paths.logs(), code), end; !code && entry != end;
       entry.increment(code)) {
    if (entry->path().extension() != ".log") continue;
    const std::string stem = entry->path().stem().string();
    if (const auto rank = rank_of(stem)) {
      ranks.emplace_back(*rank, stem);
    } else {
      others.push_back(stem);
    }
  }
  if (code) {
    return fail(ErrorKind::invalid,
                fmt::format("there is no run at '{}': {}", arguments.run, code.message()));
  }
  std::sort(ranks.begin(), ranks.end());
  std::sort(others.begin(), others.end());
  std::vector<LogFile> files;
  std::vector<int> known;
  for (const auto& [rank, stem] : ranks) {
    known.push_back(rank);
    const auto& wanted = arguments.ranks;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), rank) != wanted.end())
      files.emplace_back(fmt::format("{}", rank), paths.logs() / (stem + ".log"));
  }
  for (const int rank : arguments.ranks) {
    if (std::find(known.begin(), known.end(), rank) != known.end()) continue;
    return fail(ErrorKind::invalid,
                fmt::format("there is no log of rank {}; expected {}", rank,
                            known.empty() ? std::string("none yet")
                                          : fmt::format("one of {}", fmt::join(known, ", "))));
  }
  if (arguments.ranks.empty()) {
    for (const std::string& stem : others)
      files.emplace_back(stem, paths.logs() / (stem + ".log"));
  }
  return files;
}

/// Prints lines with whose they are before them.
class Printer {
 public:
  explicit Printer(const std::vector<LogFile>& files) {
    for (const LogFile& file : files)
      columns_ = std::max(columns_, file.label().size());
  }
  std::string prefixed(const std::string& label, const std::string& text) const {
    return fmt::format("{:>{}} | {}\n", label, columns_, text);
  }

 private:
  std::size_t columns_ = 0;
};

bool print(const std::string& line) {
  return std::fwrite(line.data(), 1, line.size(), stdout) == line.size();
}

/// What the files have now. Whether it could be printed.
bool print_all(std::vector<LogFile>& files, const Printer& printer, std::size_t tail, bool cut) {
  std::deque<std::string> last;
  while (const auto next = next_line(files, cut)) {
    LogFile& file = files[*next];
    std::string line = printer.prefixed(file.label(), file.peek(cut)->text);
    file.pop();
    if (tail == kTailMax) {
      if (!print(line)) return false;
      continue;
    }
    last.push_back(std::move(line));
    if (last.size() > tail) last.pop_front();
  }
  return std::all_of(last.begin(), last.end(), print) && std::fflush(stdout) == 0;
}

int run(const Arguments& arguments) {
  auto files = open_logs(arguments);
  if (!files) return report(files.error());
  const Printer printer(*files);
  if (!print_all(*files, printer, arguments.tail, !arguments.follow)) return kDone;
  for (int round = 0; arguments.follow; ++round) {
    bool goes_on = true;
    if (round % kRunLookEvery == 0) {
      const auto running = is_running(arguments.run);
      goes_on = running && *running;
    }
    if (goes_on) std::this_thread::sleep_for(kFollowInterval);
    // What was written before the end is there by now.
    if (!print_all(*files, printer, kTailMax, !goes_on) || !goes_on) break;
  }
  return kDone;
}

}  // namespace

void add_logs(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "logs",
      "Print the logs of a run's processes, running or ended, merged by time, each line with its "
      "rank before it. Lines without a time stay behind the line they follow");
  command->add_option("run", arguments->run, "The run's folder")->required();
  command->add_option("--rank", arguments->ranks, "Only this rank's; repeatable")
      ->take_all()
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber);
  command->add_flag("-f,--follow", arguments->follow, "Go on as they grow, until the run ends");
  command->add_option("--tail", arguments->tail, "Begin with so many last lines; default: all")
      ->check(number_from(std::size_t{0}, kTailMax - 1));
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
