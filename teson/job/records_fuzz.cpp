#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "teson/job/records.h"
#include "teson/job/summary.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::job;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto step = parse_step_record(text); step && !parse_step_record(to_json(*step)))
    std::abort();
  if (const auto event = parse_event_record(text); event && !parse_event_record(to_json(*event)))
    std::abort();
  if (const auto line = parse_ledger_line(text);
      line && parse_ledger_line(to_json(*line)).value() != *line)
    std::abort();
  if (const auto summary = parse_summary(text); summary && format_summary(*summary).empty())
    std::abort();
  return 0;
}
