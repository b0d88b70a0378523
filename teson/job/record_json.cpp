#include <array>
#include <charconv>
#include <ctime>

#include "teson/job/json_fields.h"
#include "teson/job/records.h"

namespace teson::job {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 12> kEventNames = {
    "started",    "resumed",    "failure",  "epoch",   "recovered", "rejoin",
    "checkpoint", "evaluation", "injected", "refused", "warning",   "finished"};
constexpr std::size_t kLanesMax = 1 << 16;
constexpr std::size_t kCauseBytesMax = 16 << 10;

Result<std::uint64_t> parse_hash(std::string_view text) {
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorKind::invalid, "field \"sample_hash\": expected 16 hexadecimal digits");
  }
  return hash;
}

/// Nanoseconds since 1970 of a text that iso_time wrote; whole milliseconds.
Result<std::int64_t> parse_iso_time(const std::string& text) {
  std::tm parts{};
  int millis = -1;
  const char* const fraction = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S.", &parts);
  const char* const end = text.data() + text.size();
  if (fraction != nullptr && end - fraction == 4) std::from_chars(fraction, end - 1, millis);
  if (millis < 0 || text.back() != 'Z') {
    return fail(ErrorKind::invalid, "field \"time\": expected \"YYYY-MM-DDTHH:MM:SS.mmmZ\"");
  }
  return (std::int64_t{timegm(&parts)} * 1000 + millis) * 1'000'000;
}

template <typename T>
void put(Json& json, const char* name, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (std::is_floating_point_v<T>) {
    json[name] = finite_or_null(*value);
  } else {
    json[name] = *value;
  }
}

LaneEntry read_lane(const nlohmann::json& json, JsonFields& line) {
  JsonFields fields(json);
  LaneEntry lane;
  lane.lane = fields.whole<int>("lane");
  lane.replica = fields.whole<int>("replica");
  lane.samples = fields.whole<std::int64_t>("samples");
  if (const auto hash = parse_hash(fields.text("sample_hash"))) {
    lane.sample_hash = *hash;
  } else {
    fields.wrong(hash.error().message);
  }
  if (!fields.good()) line.wrong("lanes: " + fields.failure().value().message);
  return lane;
}

}  // namespace

std::string_view to_string(EventKind kind) {
  return kEventNames[static_cast<std::size_t>(kind)];
}

std::string iso_time(std::int64_t wall_ns) {
  std::int64_t millis = wall_ns / 1'000'000;
  if (wall_ns % 1'000'000 < 0) --millis;
  std::int64_t seconds = millis / 1000, rest = millis % 1000;
  if (rest < 0) {
    --seconds;
    rest += 1000;
  }
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     rest);
}

std::string to_json(const StepRecord& record) {
  Json json = {{"step", record.step}, {"loss", finite_or_null(record.loss)}};
  if (!std::isfinite(record.loss)) json["non_finite"] = true;
  json["tokens"] = record.tokens;
  json["tokens_per_s"] = finite_or_null(record.tokens_per_s);
  json["learning_rate"] = finite_or_null(record.learning_rate);
  json["gradient_norm"] = finite_or_null(record.gradient_norm);
  json["seconds"] = finite_or_null(record.seconds);
  json["replicas"] = record.replicas;
  json["epoch"] = record.epoch;
  json["skipped"] = record.skipped;
  return dump_line(json);
}

std::string to_json(const EventRecord& record) {
  Json json = {{"kind", to_string(record.kind)},
               {"time", iso_time(record.wall_ns)},
               {"monotonic_ns", record.at.time_since_epoch().count()}};
  put(json, "replica", record.replica);
  put(json, "step", record.step);
  put(json, "epoch", record.epoch);
  if (!record.cause.empty()) json["cause"] = record.cause.substr(0, kCauseBytesMax);
  put(json, "detect_ms", record.detect_ms);
  put(json, "fence_ms", record.fence_ms);
  put(json, "reconfigure_ms", record.reconfigure_ms);
  put(json, "commit_ms", record.commit_ms);
  put(json, "rejoin_ms", record.rejoin_ms);
  put(json, "loss", record.loss);
  return dump_line(json);
}

std::string to_json(const LedgerLine& line) {
  Json lanes = Json::array();
  for (const LaneEntry& lane : line.lanes) {
    lanes.push_back({{"lane", lane.lane},
                     {"replica", lane.replica},
                     {"samples", lane.samples},
                     {"sample_hash", fmt::format("{:016x}", lane.sample_hash)}});
  }
  const Json json = {{"step", line.step}, {"epoch", line.epoch}, {"lanes", std::move(lanes)}};
  return dump_line(json);
}

Result<StepRecord> parse_step_record(std::string_view line) {
  TESON_TRY(const nlohmann::json json, parse_json(line));
  JsonFields fields(json);
  StepRecord record;
  record.step = fields.whole<std::int64_t>("step");
  record.loss = fields.real("loss");
  record.tokens = fields.whole<std::int64_t>("tokens");
  record.tokens_per_s = fields.real("tokens_per_s");
  record.learning_rate = fields.real("learning_rate");
  record.gradient_norm = fields.real("gradient_norm");
  record.seconds = fields.real("seconds");
  record.replicas = fields.whole<int>("replicas");
  record.epoch = fields.whole<std::uint64_t>("epoch");
  record.skipped = fields.flag("skipped");
  if (!fields.good()) return fields.failure();
  return record;
}

Result<EventRecord> parse_event_record(std::string_view line) {
  TESON_TRY(const nlohmann::json json, parse_json(line));
  JsonFields fields(json);
  EventRecord record;
  const std::string kind = fields.text("kind");
  const auto found = std::find(kEventNames.begin(), kEventNames.end(), kind);
  if (found == kEventNames.end()) {
    fields.wrong("field \"kind\": expected the name of an event");
  } else {
    record.kind = static_cast<EventKind>(found - kEventNames.begin());
  }
  if (const auto time = parse_iso_time(fields.text("time"))) {
    record.wall_ns = *time;
  } else {
    fields.wrong(time.error().message);
  }
  record.at = Instant(Duration(fields.whole<std::int64_t>("monotonic_ns")));
  record.replica = fields.optional_whole<int>("replica");
  record.step = fields.optional_whole<std::int64_t>("step");
  record.epoch = fields.optional_whole<std::uint64_t>("epoch");
  record.cause = fields.text("cause");
  record.detect_ms = fields.optional_real("detect_ms");
  record.fence_ms = fields.optional_real("fence_ms");
  record.reconfigure_ms = fields.optional_real("reconfigure_ms");
  record.commit_ms = fields.optional_real("commit_ms");
  record.rejoin_ms = fields.optional_real("rejoin_ms");
  record.loss = fields.optional_real("loss");
  if (!fields.good()) return fields.failure();
  return record;
}

Result<LedgerLine> parse_ledger_line(std::string_view line) {
  TESON_TRY(const nlohmann::json json, parse_json(line));
  JsonFields fields(json);
  LedgerLine read;
  read.step = fields.whole<std::int64_t>("step");
  read.epoch = fields.whole<std::uint64_t>("epoch");
  const nlohmann::json& lanes = fields.list("lanes");
  if (lanes.size() > kLanesMax) fields.wrong(fmt::format("lanes: expected at most {}", kLanesMax));
  for (std::size_t i = 0; i < lanes.size() && fields.good(); ++i)
    read.lanes.push_back(read_lane(lanes[i], fields));
  if (!fields.good()) return fields.failure();
  return read;
}

}  // namespace teson::job
