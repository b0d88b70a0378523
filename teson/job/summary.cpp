#include "teson/job/summary.h"

#include <algorithm>
#include <cmath>

#include "teson/base/file.h"
#include "teson/job/json_fields.h"
#include "teson/job/live_line.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kSummaryBytesMax = 64 << 20;
constexpr std::size_t kCauseColumnsMax = 40;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

Json to_json_value(const FailureRow& row) {
  return {{"replica", row.replica},
          {"cause", row.cause},
          {"step", row.step},
          {"injected", row.injected},
          {"detect_ms", number(row.detect_ms)},
          {"fence_ms", number(row.fence_ms)},
          {"reconfigure_ms", number(row.reconfigure_ms)},
          {"commit_ms", number(row.commit_ms)},
          {"rejoin_ms", number(row.rejoin_ms)}};
}

Result<FailureRow> parse_failure(const nlohmann::json& json) {
  JsonFields fields(json);
  FailureRow row;
  row.replica = fields.whole<int>("replica");
  row.cause = fields.text("cause");
  row.step = fields.whole<std::int64_t>("step");
  row.injected = fields.flag("injected");
  row.detect_ms = fields.optional_real("detect_ms");
  row.fence_ms = fields.optional_real("fence_ms");
  row.reconfigure_ms = fields.optional_real("reconfigure_ms");
  row.commit_ms = fields.optional_real("commit_ms");
  row.rejoin_ms = fields.optional_real("rejoin_ms");
  if (!fields.good()) return fields.failure();
  return row;
}

std::string shown(const std::optional<double>& value, int digits) {
  if (!value) return "–";
  return std::isfinite(*value) ? fmt::format("{:.{}f}", *value, digits) : "not finite";
}

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell; the first `left` ones flush left.
std::string format_table(const std::vector<Row>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += " " + (i < left ? pad_right(row[i], widths[i]) : pad_left(row[i], widths[i])) + " ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

using Phase = std::optional<double> FailureRow::*;
constexpr Phase kPhases[] = {&FailureRow::detect_ms, &FailureRow::reconfigure_ms,
                             &FailureRow::commit_ms, &FailureRow::rejoin_ms};

Row phase_summary(const std::vector<FailureRow>& failures, const char* name, double q) {
  Row row = {name, "", "", ""};
  for (const Phase phase : kPhases) {
    std::vector<double> values;
    for (const FailureRow& failure : failures) {
      if (failure.*phase) values.push_back(*(failure.*phase));
    }
    row.push_back(shown(quantile(std::move(values), q), 1));
  }
  return row;
}

std::string format_failures(const std::vector<FailureRow>& failures, std::size_t rows_max) {
  std::vector<Row> rows = {{"#", "cause", "replica", "after step", "detect ms", "reconfigure ms",
                            "first commit ms", "rejoin ms"}};
  for (std::size_t i = 0; i < std::min(failures.size(), rows_max); ++i) {
    const FailureRow& failure = failures[i];
    const std::string cause = printable(failure.cause) + (failure.injected ? " (injected)" : "");
    Row row = {fmt::format("{}", i + 1), truncate_to_width(cause, kCauseColumnsMax),
               fmt::format("{}", failure.replica), fmt::format("{}", failure.step)};
    for (const Phase phase : kPhases)
      row.push_back(shown(failure.*phase, 1));
    rows.push_back(std::move(row));
  }
  if (failures.size() > 1) {
    rows.push_back(phase_summary(failures, "p50", 0.5));
    rows.push_back(phase_summary(failures, "max", 1.0));
  }
  std::string text = format_table(rows, 2);
  if (failures.size() > rows_max)
    text += fmt::format("  and {} more in events.jsonl\n", failures.size() - rows_max);
  return text;
}

}  // namespace

std::optional<double> quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::string to_json(const Summary& summary) {
  Json failures = Json::array();
  for (const FailureRow& row : summary.failures)
    failures.push_back(to_json_value(row));
  const Json json = {
      {"status", summary.status},
      {"reason", summary.reason},
      {"steps", summary.steps},
      {"steps_planned", summary.steps_planned},
      {"steps_lost", summary.steps_lost},
      {"steps_skipped", summary.steps_skipped},
      {"tokens", summary.tokens},
      {"samples_planned", summary.samples_planned},
      {"samples_used", summary.samples_used},
      {"loss_first", number(summary.loss_first)},
      {"loss_last", number(summary.loss_last)},
      {"val_loss", number(summary.val_loss)},
      {"val_loss_step", summary.val_loss_step ? Json(*summary.val_loss_step) : Json()},
      {"unigram_entropy", number(summary.unigram_entropy)},
      {"weights_sha256", summary.weights_sha256},
      {"seconds", number(summary.seconds)},
      {"tokens_per_s", number(summary.tokens_per_s)},
      {"replicas", summary.replicas},
      {"faults_unfired", summary.faults_unfired},
      {"failures_total", summary.failures_total},
      {"failures", std::move(failures)}};
  return dump_line(json, 2) + "\n";
}

Result<Summary> parse_summary(std::string_view text) {
  TESON_TRY(const nlohmann::json json, parse_json(text));
  JsonFields fields(json);
  Summary summary;
  summary.status = fields.text("status");
  summary.reason = fields.text("reason");
  summary.steps = fields.whole<std::int64_t>("steps");
  summary.steps_planned = fields.whole<std::int64_t>("steps_planned");
  summary.steps_lost = fields.whole<std::int64_t>("steps_lost");
  summary.steps_skipped = fields.whole<std::int64_t>("steps_skipped");
  summary.tokens = fields.whole<std::int64_t>("tokens");
  summary.samples_planned = fields.whole<std::int64_t>("samples_planned");
  summary.samples_used = fields.whole<std::int64_t>("samples_used");
  summary.loss_first = fields.optional_real("loss_first");
  summary.loss_last = fields.optional_real("loss_last");
  summary.val_loss = fields.optional_real("val_loss");
  summary.val_loss_step = fields.optional_whole<std::int64_t>("val_loss_step");
  summary.unigram_entropy = fields.optional_real("unigram_entropy");
  summary.weights_sha256 = fields.text("weights_sha256");
  summary.seconds = fields.real("seconds");
  summary.tokens_per_s = fields.real("tokens_per_s");
  summary.replicas = fields.whole<int>("replicas");
  summary.faults_unfired = fields.texts("faults_unfired");
  summary.failures_total = fields.whole<std::int64_t>("failures_total");
  for (const nlohmann::json& each : fields.list("failures")) {
    TESON_TRY(FailureRow row, parse_failure(each));
    summary.failures.push_back(std::move(row));
  }
  if (!fields.good()) return fields.failure();
  return summary;
}

Result<void> write_summary(const Summary& summary, const std::filesystem::path& path) {
  return write_file_atomic(path, to_json(summary));
}

Result<Summary> read_summary(const std::filesystem::path& path) {
  TESON_TRY(const std::string text, read_file(path, kSummaryBytesMax));
  auto summary = parse_summary(text);
  if (!summary) return fail(summary.error().in(path.string()));
  return summary;
}

std::string format_summary(const Summary& summary, std::size_t failures_max) {
  const auto count = [](std::int64_t number) { return format_count(static_cast<double>(number)); };
  const std::string val_loss =
      shown(summary.val_loss, 4) +
      (summary.val_loss_step ? fmt::format(" after step {}", *summary.val_loss_step) : "");
  std::vector<Row> rows = {
      {"status",
       printable(summary.reason.empty() ? summary.status : summary.status + ": " + summary.reason)},
      {"the whole run", ""},
      {"  steps", fmt::format("{} of {}{}", summary.steps, summary.steps_planned,
                              summary.steps_skipped > 0
                                  ? fmt::format(", {} without update", summary.steps_skipped)
                                  : "")},
      {"  samples",
       fmt::format("{} used of {} planned", summary.samples_used, summary.samples_planned)},
      {"  tokens", count(summary.tokens)},
      {"  loss",
       fmt::format("{} to {}", shown(summary.loss_first, 4), shown(summary.loss_last, 4))},
      {"  validation loss", val_loss},
      {"  unigram entropy", shown(summary.unigram_entropy, 4)},
      {"  weights sha256",
       summary.weights_sha256.empty() ? "–" : printable(summary.weights_sha256)},
      {"  failures", fmt::format("{}", summary.failures_total)},
      {"this session", ""},
      {"  time", fmt::format("{} ({:.1f} s)", format_seconds(summary.seconds), summary.seconds)},
      {"  tokens a second", format_count(summary.tokens_per_s)},
      {"  replicas", fmt::format("{}", summary.replicas)},
      {"  steps lost", fmt::format("{}", summary.steps_lost)},
      {"  failures", fmt::format("{}", summary.failures.size())},
  };
  std::string text = format_table(rows, 2);
  if (!summary.failures.empty()) text += "\n" + format_failures(summary.failures, failures_max);
  return text;
}

}  // namespace teson::job
