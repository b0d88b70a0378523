#pragma once

#include <algorithm>
#include <cstdint>

namespace teson::net {

/// How often a thread may look for what it waits for before it sleeps. To be woken costs more than a
/// short look, but a look that finds nothing takes the processor from others: after each of those
/// the next waits go without, 1, 3, 7 … of them. One thread at a time.
class SpinBudget {
 public:
  static constexpr std::uint32_t skipped_max = 255;

  /// Whether to look, this time.
  bool spend() {
    if (left_to_skip_ == 0) return true;
    --left_to_skip_;
    return false;
  }
  /// What the look has brought.
  void note(bool found) {
    skip_ = found ? 0 : std::min(2 * skip_ + 1, skipped_max);
    left_to_skip_ = skip_;
  }

 private:
  std::uint32_t skip_ = 0;
  std::uint32_t left_to_skip_ = 0;
};

}  // namespace teson::net
