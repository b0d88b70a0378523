#include "teson/base/random.h"

#include <cerrno>
#include <cmath>
#include <numbers>

#include <sys/random.h>

#include "teson/base/check.h"
#include "teson/base/world.h"

namespace teson {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

std::uint64_t finalize(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

std::uint64_t mix(std::initializer_list<std::uint64_t> keys) {
  std::uint64_t state = kGolden;
  for (std::uint64_t key : keys) {
    state = finalize(state + kGolden) ^ finalize(key + 2 * kGolden);
    state = finalize(state + kGolden);
  }
  return state;
}

std::uint64_t CounterRandom::next() {
  ++counter_;
  return finalize(key_ + counter_ * kGolden);
}

std::uint64_t CounterRandom::below(std::uint64_t bound) {
  TESON_CHECK(bound > 0);
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  auto low = static_cast<std::uint64_t>(product);
  if (low < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      product = static_cast<Wide>(next()) * bound;
      low = static_cast<std::uint64_t>(product);
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double CounterRandom::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

double CounterRandom::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t entropy64() {
  if (World* const world = World::current()) return world->entropy();
  std::uint64_t value = 0;
  auto* bytes = reinterpret_cast<char*>(&value);
  std::size_t filled = 0;
  while (filled < sizeof value) {
    const ssize_t got = getrandom(bytes + filled, sizeof value - filled, 0);
    TESON_CHECK(got > 0 || errno == EINTR, errno);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return value;
}

}  // namespace teson
