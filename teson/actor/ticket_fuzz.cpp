#include <cstddef>
#include <cstdint>
#include <string_view>

#include "teson/actor/proc_ticket.h"
#include "teson/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::actor::detail;
  const auto ticket = read_ticket({reinterpret_cast<const char*>(data), size});
  if (!ticket) return 0;
  // What is read is written in the same way, up to the case of its digits.
  const auto again = read_ticket(ticket_text(*ticket));
  TESON_CHECK(again.has_value() && ticket_text(*again) == ticket_text(*ticket));
  return 0;
}
