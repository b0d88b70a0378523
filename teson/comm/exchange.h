#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "teson/comm/operation.h"

namespace teson::comm {

/// What moves between this rank and one other; nothing: no frames that way (an empty span still
/// sends one).
struct Transfer {
  std::optional<std::span<const std::byte>> to;
  std::optional<std::span<std::byte>> from;
};

/// Moves bytes between ranks without computing: all-gather, all-to-all, broadcast, barrier.
class Exchange final : public Operation {
 public:
  /// `transfers` by rank; the own entry is copied from `to` into `from`.
  Exchange(int rank, std::vector<Transfer> transfers);

  Result<void> start(std::uint64_t number, FrameSender& sender) override;
  Result<std::optional<std::span<std::byte>>> place(int rank,
                                                    const net::FrameHeader& header) override;
  Result<void> received(int rank, const net::FrameHeader& header) override;

 private:
  int rank_;
  std::vector<Transfer> transfers_;
};

}  // namespace teson::comm
