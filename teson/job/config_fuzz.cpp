#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "teson/job/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = teson::job::parse_config(text, "fuzz");
  if (!config) return 0;
  const std::string canonical = teson::job::to_toml(*config);
  const auto again = teson::job::parse_config(canonical, "canonical");
  if (!again || teson::job::to_toml(*again) != canonical) std::abort();
  return 0;
}
