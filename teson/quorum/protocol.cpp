#include "teson/quorum/protocol.h"

#include <utility>

#include <fmt/format.h>

#include "teson/net/codec.h"

namespace teson::quorum {
namespace {

template <typename Variant>
Packed pack_any(const Variant& message) {
  Packed packed;
  packed.kind = static_cast<std::uint16_t>(message.index());
  packed.payload = std::visit([](const auto& value) { return net::encode(value); }, message);
  return packed;
}

template <typename Variant, std::size_t... I>
Result<Variant> unpack_any(std::uint16_t kind, std::string_view payload,
                           std::index_sequence<I...>) {
  Result<Variant> result =
      fail(ErrorKind::invalid,
           fmt::format("quorum message of kind {}: expected 0 to {}", kind, sizeof...(I) - 1));
  const auto try_one = [&]<std::size_t Index>() {
    if (kind != Index) return;
    auto value = net::decode<std::variant_alternative_t<Index, Variant>>(payload);
    if (value) {
      result = Variant(std::in_place_index<Index>, std::move(*value));
    } else {
      result = fail(value.error().in(fmt::format("quorum message of kind {}", kind)));
    }
  };
  (try_one.template operator()<I>(), ...);
  return result;
}

template <typename Variant>
Result<Variant> unpack_any(std::uint16_t kind, std::string_view payload) {
  return unpack_any<Variant>(kind, payload,
                             std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace

Packed pack(const ToLighthouse& message) {
  return pack_any(message);
}
Packed pack(const FromLighthouse& message) {
  return pack_any(message);
}

Result<ToLighthouse> unpack_to_lighthouse(std::uint16_t kind, std::string_view payload) {
  return unpack_any<ToLighthouse>(kind, payload);
}

Result<FromLighthouse> unpack_from_lighthouse(std::uint16_t kind, std::string_view payload) {
  return unpack_any<FromLighthouse>(kind, payload);
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::idle:
      return "idle";
    case Phase::warming:
      return "warming";
    case Phase::compute:
      return "compute";
    case Phase::waiting_for_peers:
      return "waiting_for_peers";
    case Phase::applying:
      return "applying";
    case Phase::evaluating:
      return "evaluating";
    case Phase::checkpointing:
      return "checkpointing";
  }
  return "?";
}

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::none:
      return "none";
    case Cause::process_ended:
      return "process_ended";
    case Cause::launcher:
      return "launcher";
    case Cause::link_lost:
      return "link_lost";
    case Cause::silent:
      return "silent";
    case Cause::hang:
      return "hang";
    case Cause::no_status:
      return "no_status";
    case Cause::unreachable:
      return "unreachable";
    case Cause::mismatch:
      return "mismatch";
    case Cause::left:
      return "left";
    case Cause::no_state:
      return "no_state";
  }
  return "?";
}

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::hello:
      return "hello";
    case EventKind::dead:
      return "dead";
    case EventKind::fenced:
      return "fenced";
    case EventKind::started:
      return "started";
    case EventKind::expelled:
      return "expelled";
    case EventKind::left:
      return "left";
    case EventKind::refused:
      return "refused";
    case EventKind::waiting_proof:
      return "waiting_proof";
    case EventKind::forming:
      return "forming";
    case EventKind::level:
      return "level";
    case EventKind::trouble:
      return "trouble";
  }
  return "?";
}

}  // namespace teson::quorum
