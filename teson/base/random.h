#pragma once

#include <cstdint>
#include <initializer_list>

namespace teson {

/// A well-mixed 64-bit value that is a pure function of its keys, in their order: for counter-based
/// random numbers, keyed for instance by (seed, step, lane, microbatch). Mixing: the finalizer of
/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mix(std::initializer_list<std::uint64_t> keys);

/// A small generator whose whole state is one counter and one key; the same keys give the same
/// numbers on every machine.
class CounterRandom {
 public:
  explicit CounterRandom(std::initializer_list<std::uint64_t> keys) : key_(mix(keys)) {}

  std::uint64_t next();
  /// Uniform in [0, bound), without bias (Lemire, 2019). bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1), 53 bits.
  double uniform();
  /// Standard normal (Box-Muller).
  double normal();

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

/// 64 bits from the operating system, for instance numbers and secrets.
std::uint64_t entropy64();

}  // namespace teson
