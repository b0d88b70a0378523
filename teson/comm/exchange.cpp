#include "teson/comm/exchange.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "teson/base/check.h"

namespace teson::comm {
namespace {

template <typename Byte>
std::span<Byte> chunk_of(std::span<Byte> bytes, std::uint64_t chunk) {
  const std::size_t begin = chunk * chunk_bytes;
  return bytes.subspan(begin, std::min<std::size_t>(chunk_bytes, bytes.size() - begin));
}

}  // namespace

Exchange::Exchange(int rank, std::vector<Transfer> transfers)
    : Operation(static_cast<int>(transfers.size())),
      rank_(rank),
      transfers_(std::move(transfers)) {}

Result<void> Exchange::start(std::uint64_t number, FrameSender& sender) {
  for (std::size_t peer = 0; peer < transfers_.size(); ++peer) {
    const Transfer& transfer = transfers_[peer];
    if (static_cast<int>(peer) == rank_) {
      if (transfer.to && transfer.from && transfer.to->data() != transfer.from->data() &&
          !transfer.to->empty()) {
        std::memmove(transfer.from->data(), transfer.to->data(), transfer.to->size());
      }
      continue;
    }
    if (transfer.from) receives_left_[peer] = chunks_of(transfer.from->size());
    if (!transfer.to) continue;
    sends_left_[peer] = chunks_of(transfer.to->size());
    TESON_CHECK(sends_left_[peer] < items_max, transfer.to->size());
    for (std::uint64_t chunk = 0; chunk < sends_left_[peer]; ++chunk) {
      sender.push(static_cast<int>(peer), {.kind = FrameKind::exchange,
                                           .sequence = sequence_of(number, chunk),
                                           .payload = chunk_of(*transfer.to, chunk),
                                           .listener = this});
    }
  }
  return {};
}

Result<std::optional<std::span<std::byte>>> Exchange::place(int rank,
                                                            const net::FrameHeader& header) {
  const Transfer& transfer = transfers_[static_cast<std::size_t>(rank)];
  const std::size_t left = receives_left_[static_cast<std::size_t>(rank)];
  if (header.kind != static_cast<std::uint16_t>(FrameKind::exchange) || left == 0) {
    return unexpected(rank, header, left == 0 ? "nothing more from it" : "a frame of kind 16");
  }
  const std::uint64_t chunk = chunks_of(transfer.from->size()) - left;
  const std::span<std::byte> place = chunk_of(*transfer.from, chunk);
  if (item_of(header.sequence) != chunk || header.payload_bytes != place.size()) {
    return unexpected(rank, header, fmt::format("item {} of {} bytes", chunk, place.size()));
  }
  return place;
}

Result<void> Exchange::received(int rank, const net::FrameHeader&) {
  --receives_left_[static_cast<std::size_t>(rank)];
  return {};
}

}  // namespace teson::comm
