#include "teson/quorum/record.h"

#include <set>

#include <fmt/format.h>

namespace teson::quorum {
namespace {

const char* text_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::go_on:
      return "go on";
    case Verdict::commit:
      return "commit";
    case Verdict::discard:
      return "discard";
  }
  return "?";
}

}  // namespace

int rank_of(const EpochRecord& record, std::uint64_t instance) {
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    if (record.members[i].id.instance == instance) return static_cast<int>(i);
  }
  return -1;
}

Result<void> check_record(const EpochRecord& record) {
  if (record.lanes_total < 1 || record.lanes_total > lanes_max || record.replicas_expected < 1 ||
      record.members.empty() || record.epoch <= record.parent || record.base_step < 0) {
    return fail(ErrorKind::invalid,
                fmt::format("epoch record: lanes {} (1 to {}), replicas {} (at least 1), {} "
                            "members (at least 1), epoch {} "
                            "after {}, base step {} are out of range",
                            record.lanes_total, lanes_max, record.replicas_expected,
                            record.members.size(), record.epoch, record.parent, record.base_step));
  }
  std::vector<bool> is_held(static_cast<std::size_t>(record.lanes_total), false);
  std::set<std::uint64_t> instances;
  std::int64_t weights = 0;
  bool has_donor = false;
  for (const Member& member : record.members) {
    weights += member.lanes;
    has_donor |= !member.learner;
    bool is_good = member.lanes >= 0 && instances.insert(member.id.instance).second;
    for (const std::int32_t lane : member.lanes_held) {
      is_good = is_good && lane >= 0 && lane < record.lanes_total &&
                !is_held[static_cast<std::size_t>(lane)];
      if (is_good) is_held[static_cast<std::size_t>(lane)] = true;
    }
    if (!is_good) {
      return fail(
          ErrorKind::invalid,
          fmt::format("epoch record: member of replica {} is listed twice, or its lanes are",
                      member.id.replica));
    }
  }
  if (!has_donor || (record.mode == Mode::exact && weights != record.lanes_total)) {
    return fail(
        ErrorKind::invalid,
        fmt::format("epoch record: weights add up to {} of {} lanes, members with state: {}",
                    weights, record.lanes_total, has_donor ? "some" : "none"));
  }
  return {};
}

bool tile_is_final(const Member& member, std::size_t tile) {
  return tile / 8 < member.tiles_final.size() &&
         ((member.tiles_final[tile / 8] >> (tile % 8)) & 1) != 0;
}

void set_tile(std::vector<std::uint8_t>& bitmap, std::size_t tile) {
  if (tile / 8 >= bitmap.size()) bitmap.resize(tile / 8 + 1);
  bitmap[tile / 8] = static_cast<std::uint8_t>(bitmap[tile / 8] | (1U << (tile % 8)));
}

std::string epoch_text(std::int64_t epoch) {
  return fmt::format("{}.{}", term_of(epoch), static_cast<std::uint32_t>(epoch));
}

std::string describe(const EpochRecord& record) {
  std::string members;
  for (const Member& member : record.members) {
    members += fmt::format(" {}{}", member.id.replica, member.learner ? "(learner)" : "");
  }
  return fmt::format("epoch {}, incarnation {}, base step {} ({}), members{}",
                     epoch_text(record.epoch), record.incarnation, record.base_step,
                     text_of(record.verdict), members);
}

}  // namespace teson::quorum
