#include "teson/job/inject.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/base/random.h"
#include "teson/job/nearest.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

constexpr std::array<std::string_view, 6> kKinds = {"kill",      "stop", "segfault",
                                                    "exception", "hang", "nan"};
constexpr std::array<std::string_view, 5> kPhases = {"compute", "reduce", "vote", "apply",
                                                     "checkpoint"};
constexpr std::size_t kFaultsMax = 10'000;
constexpr Duration kEveryMin = std::chrono::milliseconds(10);
constexpr Duration kEveryMax = std::chrono::hours(24);

template <std::size_t N>
std::string joined(const std::array<std::string_view, N>& names) {
  std::string text;
  for (const std::string_view name : names)
    text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

Failure wrong(std::string_view text, const std::string& what) {
  return fail(ErrorKind::invalid,
              fmt::format("--inject {}: {}", truncate_to_width(printable(text), 100), what));
}

template <std::size_t N>
std::optional<std::size_t> index_in(const std::array<std::string_view, N>& names,
                                    std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Duration> duration(std::string_view text) {
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  if (unit_at == 0 || unit_at == std::string_view::npos) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + unit_at, number);
  if (error != std::errc() || end != text.data() + unit_at) return std::nullopt;
  const std::string_view unit = text.substr(unit_at);
  const double ns = unit == "ms" ? 1e6 : unit == "s" ? 1e9 : unit == "m" ? 60e9 : 0;
  if (ns == 0 || number * ns > 1e15) return std::nullopt;
  return Duration(std::llround(number * ns));
}

using Arguments = std::map<std::string, std::string, std::less<>>;

Result<Arguments> arguments_of(std::string_view text, std::string_view list) {
  Arguments arguments;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return wrong(text, fmt::format("expected name=value, found \"{}\"", printable(part)));
    }
    const std::string name(part.substr(0, equals));
    const std::vector<std::string> known = {"replica", "step", "phase", "every", "seed", "count"};
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string near = nearest(name, known);
      return wrong(
          text,
          fmt::format("unknown part \"{}\"; {}", printable(name),
                      near.empty() ? "expected replica, step and phase, or every, seed and count"
                                   : "the nearest known one is " + near));
    }
    if (!arguments.emplace(name, part.substr(equals + 1)).second)
      return wrong(text, fmt::format("\"{}\" occurs twice", name));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return arguments;
}

Result<std::int64_t> number_of(std::string_view text, const Arguments& arguments,
                               std::string_view name, std::optional<std::int64_t> otherwise,
                               std::int64_t low, std::int64_t high) {
  const auto found = arguments.find(name);
  if (found == arguments.end()) {
    if (otherwise) return *otherwise;
    return wrong(text, fmt::format("expected {}=NUMBER", name));
  }
  const auto value = whole(found->second);
  if (!value || *value < low || *value > high) {
    return wrong(text, fmt::format("{}: expected a whole number from {} to {}, found \"{}\"", name,
                                   low, high, printable(found->second)));
  }
  return *value;
}

Result<Fault> fault_of(std::string_view text, FaultKind kind, const Arguments& arguments) {
  Fault fault;
  fault.kind = kind;
  TESON_TRY(const std::int64_t replica,
            number_of(text, arguments, "replica", std::nullopt, 0, 4095));
  TESON_TRY(fault.step, number_of(text, arguments, "step", std::nullopt, 1, 1'000'000'000'000));
  fault.replica = static_cast<int>(replica);
  if (const auto phase = arguments.find("phase"); phase != arguments.end()) {
    const auto index = index_in(kPhases, phase->second);
    if (!index)
      return wrong(text, fmt::format("phase: expected one of {}, found \"{}\"", joined(kPhases),
                                     printable(phase->second)));
    fault.phase = static_cast<FaultPhase>(*index);
  }
  for (const auto& [name, value] : arguments) {
    if (name == "seed" || name == "count")
      return wrong(text, fmt::format("\"{}\" goes with every=, not with step=", name));
  }
  if (kind == FaultKind::nan && fault.phase != FaultPhase::compute) {
    return wrong(text, "nan happens in phase compute only");
  }
  return fault;
}

Result<RandomFaults> random_of(std::string_view text, FaultKind kind, const Arguments& arguments) {
  if (kind != FaultKind::kill && kind != FaultKind::stop && kind != FaultKind::segfault) {
    return wrong(text, fmt::format("{} needs replica= and step=; at random times only kill, stop "
                                   "and segfault can be put in",
                                   to_string(kind)));
  }
  for (const auto& [name, value] : arguments) {
    if (name == "replica" || name == "step" || name == "phase") {
      return wrong(text, fmt::format("\"{}\" goes with step=, not with every=", name));
    }
  }
  RandomFaults random;
  random.kind = kind;
  const std::string& every = arguments.find("every")->second;
  const auto distance = duration(every);
  if (!distance || *distance < kEveryMin || *distance > kEveryMax) {
    return wrong(
        text,
        fmt::format("every: expected a duration from 10ms to 1440m, such as 15s, found \"{}\"",
                    printable(every)));
  }
  random.every = *distance;
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  TESON_TRY(const std::int64_t seed, number_of(text, arguments, "seed", 0, 0, any));
  random.seed = static_cast<std::uint64_t>(seed);
  if (arguments.count("count") > 0) {
    TESON_TRY(const std::int64_t count,
              number_of(text, arguments, "count", std::nullopt, 1, 1'000'000));
    random.count = count;
  }
  return random;
}

std::string file_of(const std::filesystem::path& faults, const Fault& fault) {
  return (faults / fault.name()).string();
}

}  // namespace

std::string_view to_string(FaultKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}
std::string_view to_string(FaultPhase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

std::string Fault::name() const {
  return fmt::format("{}-replica{}-step{}-{}", to_string(kind), replica, step, to_string(phase));
}

Duration RandomFaults::time_of(std::int64_t n) const {
  double times = 0;
  for (std::int64_t i = 0; i <= n; ++i) {
    times += 0.5 + CounterRandom({seed, static_cast<std::uint64_t>(i), 0}).uniform();
  }
  return Duration(std::llround(times * static_cast<double>(every.count())));
}

int RandomFaults::victim_of(std::int64_t n, int candidates) const {
  CounterRandom random({seed, static_cast<std::uint64_t>(n), 1});
  return static_cast<int>(random.below(static_cast<std::uint64_t>(candidates)));
}

std::vector<Fault> FaultPlan::due(int replica, std::int64_t step, FaultPhase phase) const {
  std::vector<Fault> found;
  for (const Fault& fault : faults) {
    if (fault.replica == replica && fault.step == step && fault.phase == phase)
      found.push_back(fault);
  }
  return found;
}

Result<FaultPlan> parse_faults(const std::vector<std::string>& texts) {
  FaultPlan plan;
  if (texts.size() > kFaultsMax) {
    return fail(ErrorKind::invalid,
                fmt::format("expected at most {} faults, found {}", kFaultsMax, texts.size()));
  }
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto kind = index_in(kKinds, std::string_view(text).substr(0, colon));
    if (!kind) {
      return wrong(text, fmt::format("unknown fault \"{}\"; expected one of {}, then a colon",
                                     printable(text.substr(0, colon)), joined(kKinds)));
    }
    TESON_TRY(const Arguments arguments,
              arguments_of(text, std::string_view(text).substr(std::min(colon + 1, text.size()))));
    if (arguments.count("every") > 0) {
      TESON_TRY(RandomFaults random, random_of(text, static_cast<FaultKind>(*kind), arguments));
      plan.random.push_back(random);
      continue;
    }
    TESON_TRY(Fault fault, fault_of(text, static_cast<FaultKind>(*kind), arguments));
    if (std::find(plan.faults.begin(), plan.faults.end(), fault) != plan.faults.end()) {
      return wrong(text, "the same fault is named twice; each fires once");
    }
    fault.text = text;
    plan.faults.push_back(std::move(fault));
  }
  return plan;
}

std::vector<std::string> to_texts(const FaultPlan& plan) {
  std::vector<std::string> texts;
  for (const Fault& fault : plan.faults) {
    texts.push_back(fmt::format("{}:replica={},step={},phase={}", to_string(fault.kind),
                                fault.replica, fault.step, to_string(fault.phase)));
  }
  for (const RandomFaults& random : plan.random) {
    texts.push_back(fmt::format("{}:every={:.6f}ms,seed={}{}", to_string(random.kind),
                                to_ms(random.every), random.seed,
                                random.count ? fmt::format(",count={}", *random.count) : ""));
  }
  return texts;
}

Result<void> check_faults(const FaultPlan& plan, const Config& config) {
  for (const Fault& fault : plan.faults) {
    if (fault.replica >= config.cluster.replicas) {
      return wrong(
          fault.text,
          fmt::format("there is no replica {}; cluster.replicas is {}, so 0 to {}", fault.replica,
                      config.cluster.replicas, config.cluster.replicas - 1));
    }
    if (fault.step > config.train.steps) {
      return wrong(fault.text, fmt::format("there is no step {}; train.steps is {}", fault.step,
                                           config.train.steps));
    }
  }
  return {};
}

Result<bool> claim_fault(const std::filesystem::path& faults, const Fault& fault, Instant now) {
  const std::string path = file_of(faults, fault);
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made < 0 && errno == EEXIST) return false;
  if (made < 0) return fail_errno(fmt::format("claim fault '{}'", path), errno);
  const Fd file(made);
  TESON_TRY_VOID(write_all(file.get(), fmt::format("{}\n", now.time_since_epoch().count()), path));
  return true;
}

std::optional<Instant> claimed_at(const std::filesystem::path& faults, const Fault& fault) {
  const auto text = read_file(file_of(faults, fault), 64);
  if (!text || text->empty() || text->back() != '\n') return std::nullopt;
  const auto ns = whole(std::string_view(*text).substr(0, text->size() - 1));
  if (!ns) return std::nullopt;
  return Instant(Duration(*ns));
}

std::vector<std::string> unfired(const std::filesystem::path& faults, const FaultPlan& plan) {
  std::vector<std::string> texts;
  for (const Fault& fault : plan.faults) {
    std::error_code code;
    if (!std::filesystem::exists(file_of(faults, fault), code)) texts.push_back(fault.text);
  }
  return texts;
}

std::string unfired_text(const std::vector<std::string>& texts) {
  return fmt::format("planned, but not put in: {}", fmt::join(texts, " "));
}

}  // namespace teson::job
