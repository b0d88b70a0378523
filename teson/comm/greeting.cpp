#include "teson/comm/greeting.h"

#include <bit>
#include <cstring>

#include <fmt/core.h>

namespace teson::comm {
namespace {

static_assert(std::endian::native == std::endian::little,
              "greetings are written as they lie in memory");

struct Layout {
  std::uint64_t epoch;
  std::uint64_t instance;
  std::uint32_t from;
  std::uint32_t to;
  std::uint32_t size;
  std::uint32_t zero;
};
static_assert(sizeof(Layout) == 32);

}  // namespace

std::vector<std::byte> encode_greeting(const Greeting& greeting) {
  const Layout layout{greeting.epoch, greeting.instance, greeting.from,
                      greeting.to,    greeting.size,     0};
  const auto bytes = std::as_bytes(std::span(&layout, 1));
  return {bytes.begin(), bytes.end()};
}

Result<Greeting> decode_greeting(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() != sizeof(layout)) {
    return fail(ErrorKind::invalid,
                fmt::format("greeting of a communicator: expected {} bytes, found {}",
                            sizeof(layout), bytes.size()));
  }
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  return Greeting{layout.epoch, layout.instance, layout.from, layout.to, layout.size};
}

}  // namespace teson::comm
