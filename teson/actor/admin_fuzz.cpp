// What an admin endpoint makes of a line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "teson/actor/admin_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace teson::actor::detail;
  const auto request =
      parse_admin_request(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!request && admin_error(request.error()).empty()) std::abort();
  return 0;
}
