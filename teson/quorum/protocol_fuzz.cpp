// Build with -fsanitize=fuzzer: the first two bytes choose the direction and the kind, the rest is
// the payload.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "teson/quorum/deal.h"
#include "teson/quorum/member_state.h"
#include "teson/quorum/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::quorum;
  if (size < 2) return 0;
  const std::string_view payload(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] % 2 == 0) {
    (void)unpack_to_lighthouse(data[1], payload);
    return 0;
  }
  const auto message = unpack_from_lighthouse(data[1], payload);
  if (!message) return 0;
  MemberState member({7, 0, 0}, true, 0, 0);
  if (const auto* fence = std::get_if<Fence>(&*message)) (void)member.on_fence(*fence);
  if (const auto* start = std::get_if<Start>(&*message)) {
    const auto applied = member.on_start(start->record);
    if (applied && *applied && start->record.lanes_total < 4096) {
      (void)lanes_by_member(start->record, start->record.base_step + 1);
    }
  }
  return 0;
}
