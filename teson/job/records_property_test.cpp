#include <bit>
#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "teson/job/records.h"
#include "teson/job/text_width.h"

namespace teson::job {
namespace {

double any_double() {
  return std::bit_cast<double>(*rc::gen::arbitrary<std::uint64_t>());
}

void expect_same(double written, double read) {
  if (std::isfinite(written)) {
    RC_ASSERT(std::bit_cast<std::uint64_t>(written) == std::bit_cast<std::uint64_t>(read));
  } else {
    RC_ASSERT(std::isnan(read));
  }
}

RC_GTEST_PROP(Records, steps_come_back_to_the_bit, ()) {
  StepRecord record;
  record.step = *rc::gen::inRange<std::int64_t>(0, std::numeric_limits<std::int64_t>::max());
  record.loss = any_double();
  record.gradient_norm = any_double();
  record.seconds = any_double();
  record.tokens = *rc::gen::nonNegative<std::int64_t>();
  record.epoch = *rc::gen::arbitrary<std::uint64_t>();
  record.skipped = *rc::gen::arbitrary<bool>();
  const auto again = parse_step_record(to_json(record));
  RC_ASSERT(bool(again));
  RC_ASSERT(again->step == record.step && again->epoch == record.epoch &&
            again->tokens == record.tokens);
  RC_ASSERT(again->skipped == record.skipped);
  expect_same(record.loss, again->loss);
  expect_same(record.gradient_norm, again->gradient_norm);
  expect_same(record.seconds, again->seconds);
}

RC_GTEST_PROP(Records, ledger_lines_come_back, ()) {
  LedgerLine line;
  line.step = *rc::gen::nonNegative<std::int64_t>();
  line.epoch = *rc::gen::arbitrary<std::uint64_t>();
  const int lanes = *rc::gen::inRange(0, 20);
  for (int i = 0; i < lanes; ++i) {
    line.lanes.push_back({i, *rc::gen::inRange(0, 9), *rc::gen::nonNegative<std::int64_t>(),
                          *rc::gen::arbitrary<std::uint64_t>()});
  }
  RC_ASSERT(parse_ledger_line(to_json(line)).value() == line);
}

RC_GTEST_PROP(Records, any_text_of_an_event_gives_one_valid_line, ()) {
  EventRecord event;
  event.cause = *rc::gen::arbitrary<std::string>();
  const std::string line = to_json(event);
  RC_ASSERT(line.find('\n') == std::string::npos);
  RC_ASSERT(bool(parse_event_record(line)));
}

RC_GTEST_PROP(TextWidth, a_cut_text_fits_and_is_a_beginning, ()) {
  const std::string text = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const auto columns = *rc::gen::inRange<std::size_t>(1, 20);
  const std::string cut = truncate_to_width(text, columns);
  RC_ASSERT(display_width(cut) <= columns);
  RC_ASSERT(display_width(printable(text)) <= display_width(text));
  if (cut != text) RC_ASSERT(text.rfind(cut.substr(0, cut.size() - 3), 0) == 0);
}

}  // namespace
}  // namespace teson::job
