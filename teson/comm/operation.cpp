#include "teson/comm/operation.h"

#include <algorithm>

#include <fmt/core.h>

namespace teson::comm {

bool Operation::done() const {
  const auto zero = [](std::size_t left) { return left == 0; };
  return std::ranges::all_of(sends_left_, zero) && std::ranges::all_of(receives_left_, zero) &&
         steps_left_ == 0;
}

Failure Operation::unexpected(int rank, const net::FrameHeader& header, std::string_view expected) {
  return fail(ErrorKind::invalid,
              fmt::format("rank {} sent a frame of kind {}, operation {}, item {}, {} bytes; "
                          "expected {}: all ranks must start the "
                          "same operations with the same sizes in the same order",
                          rank, header.kind, operation_of(header.sequence),
                          item_of(header.sequence), header.payload_bytes, expected));
}

}  // namespace teson::comm
