#include "teson/comm/message_box.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace teson::comm {
namespace {

Failure wrong_size(int rank, std::uint32_t tag, std::size_t expected, std::string_view found) {
  return fail(
      ErrorKind::invalid,
      fmt::format(
          "message of rank {} with tag {}: the receive expects {} bytes, the sender sent {}", rank,
          tag, expected, found));
}

void copy_into(std::span<std::byte> target, const std::vector<std::byte>& source) {
  if (!source.empty()) std::memcpy(target.data(), source.data(), source.size());
}

}  // namespace

Result<void> MessageBox::deliver(int rank, Early& message, PostedReceive& receive) {
  if (message.data.size() != receive.data.size()) {
    return wrong_size(rank, message.tag, receive.data.size(), std::to_string(message.data.size()));
  }
  copy_into(receive.data, message.data);
  early_bytes_ -= cost_of(message);
  receive.work->finish({});
  return {};
}

Result<void> MessageBox::post(int from, PostedReceive receive) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  const auto match = std::ranges::find_if(peer.early, [&receive](const Early& message) {
    return message.tag == receive.tag && !message.claimed;
  });
  if (match == peer.early.end()) {
    peer.posted.push_back(std::move(receive));
    return {};
  }
  if (!match->complete) {
    match->claimed = std::move(receive);
    return {};
  }
  TESON_TRY_VOID(deliver(from, *match, receive));
  peer.early.erase(match);
  return {};
}

bool MessageBox::begin(Peer& peer, std::uint32_t tag) {
  const auto match = std::ranges::find_if(
      peer.posted, [tag](const PostedReceive& receive) { return receive.tag == tag; });
  const bool is_early = match == peer.posted.end();
  if (is_early && early_bytes_ + early_overhead > early_bytes_max_) return false;
  peer.arriving = true;
  peer.next_sequence = sequence_of(tag, 0);
  peer.direct_bytes = 0;
  if (is_early) {
    early_bytes_ += early_overhead;
    peer.early.push_back({tag, {}, false, std::nullopt});
    return true;
  }
  peer.direct = std::move(*match);
  peer.posted.erase(match);
  return true;
}

Result<std::optional<std::span<std::byte>>> MessageBox::place(int rank,
                                                              const net::FrameHeader& header) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const std::uint64_t tag = operation_of(header.sequence);
  const bool first = item_of(header.sequence) == 0 && !peer.arriving;
  const bool last = (header.flags & last_chunk) != 0;
  const bool in_order =
      first ? tag <= UINT32_MAX : peer.arriving && header.sequence == peer.next_sequence;
  if (!in_order || header.payload_bytes > chunk_bytes ||
      (!last && header.payload_bytes != chunk_bytes)) {
    return fail(ErrorKind::invalid,
                fmt::format("rank {} sent a message chunk out of order: sequence {:#x}, {} bytes",
                            rank, header.sequence, header.payload_bytes));
  }
  const auto bytes = static_cast<std::size_t>(header.payload_bytes);
  if (first && !begin(peer, static_cast<std::uint32_t>(tag))) return std::nullopt;
  if (!peer.direct && peer.early.back().claimed) {
    // The receive came meanwhile: the rest goes straight into place, so that no message is too
    // large to be received.
    Early& message = peer.early.back();
    if (message.data.size() <= message.claimed->data.size())
      copy_into(message.claimed->data, message.data);
    peer.direct_bytes = message.data.size();
    early_bytes_ -= cost_of(message);
    peer.direct = std::move(message.claimed);
    peer.early.pop_back();
  }
  if (!peer.direct) {
    Early& message = peer.early.back();
    if (early_bytes_ + bytes > early_bytes_max_) return std::nullopt;
    early_bytes_ += bytes;
    message.data.resize(message.data.size() + bytes);
    return std::span(message.data).last(bytes);
  }
  const std::size_t end = peer.direct_bytes + bytes;
  if (end > peer.direct->data.size() || (last && end != peer.direct->data.size())) {
    return wrong_size(rank, peer.direct->tag, peer.direct->data.size(),
                      last ? std::to_string(end) : "more");
  }
  return peer.direct->data.subspan(peer.direct_bytes, bytes);
}

Result<void> MessageBox::received(int rank, const net::FrameHeader& header) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  ++peer.next_sequence;
  const bool last = (header.flags & last_chunk) != 0;
  if (peer.direct) peer.direct_bytes += static_cast<std::size_t>(header.payload_bytes);
  if (!last) return {};
  peer.arriving = false;
  if (peer.direct) {
    const auto receive = std::exchange(peer.direct, std::nullopt);
    receive->work->finish({});
    return {};
  }
  Early& message = peer.early.back();
  message.complete = true;
  if (!message.claimed) return {};
  TESON_TRY_VOID(deliver(rank, message, *message.claimed));
  peer.early.pop_back();
  return {};
}

bool MessageBox::needs(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.direct || !peer.posted.empty() ||
         std::ranges::any_of(peer.early,
                             [](const Early& message) { return message.claimed.has_value(); });
}

void MessageBox::fail_all(const Error& error) {
  for (Peer& peer : peers_) {
    for (PostedReceive& receive : peer.posted)
      receive.work->finish(fail(error));
    for (Early& message : peer.early) {
      if (message.claimed) message.claimed->work->finish(fail(error));
    }
    if (peer.direct) peer.direct->work->finish(fail(error));
    peer = {};
  }
  early_bytes_ = 0;
}

}  // namespace teson::comm
