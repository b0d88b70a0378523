#include <bit>

#include "teson/base/check.h"
#include "teson/base/random.h"
#include "teson/data/sampler.h"

namespace teson::data {
namespace {

/// The finalizer of SplitMix64, as the round function.
std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58'476D'1CE4'E5B9ULL;
  value = (value ^ value >> 27) * 0x94D0'49BB'1331'11EBULL;
  return value ^ value >> 31;
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size) {
  TESON_CHECK(size >= 1 && size <= 1ULL << 62, size);
  const int bits = size == 1 ? 0 : std::bit_width(size - 1);
  half_bits_ = (bits + 1) / 2;
  for (int round = 0; round < kRounds; ++round) {
    keys_[round] = mix({seed, epoch, size, static_cast<std::uint64_t>(round)});
  }
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  TESON_CHECK(position < size_, position, size_);
  const std::uint64_t mask = (1ULL << half_bits_) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t mixed = left ^ (scramble(right + key) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return value;
}

}  // namespace teson::data
