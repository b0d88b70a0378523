#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "teson/base/error.h"
#include "teson/net/codec_detail.h"
#include "teson/net/payload.h"

namespace teson::net {

/// Values as bytes. Any type built from these can be encoded, by reflection, without a line of its own:
///   integers, bool, float, double      little-endian, fixed width (bool is one byte, 0 or 1)
///   scoped enums                       their underlying integer; only enumerators with values 0 … 63 are accepted
///   std::chrono durations, Instant     their count, 8 bytes
///   std::string, std::vector, std::map length as 8 bytes, then the elements (vectors of numbers in one copy)
///   std::array, std::pair, std::tuple  the elements
///   std::optional, std::variant        one byte (present, or the index), then the value
///   Result<T>                          one byte, then the value or the Error
///   structs without constructors       their members, in order (Boost.PFR); not those with base classes or C arrays
///   std::span<const std::byte>, std::string_view   as vector<byte> and string; decoded they point into the input bytes
/// Types that contain themselves are not supported: so the depth of nesting is bounded at compile time.

/// The bytes of `value`. One allocation.
template <typename T>
std::string encode(const T& value) {
  std::string out;
  out.reserve(detail::encoded_size(value));
  detail::put(out, value);
  return out;
}

/// How many bytes encode would give.
template <typename T>
std::size_t encoded_size(const T& value) {
  return detail::encoded_size(value);
}

/// Appends the bytes of `value` to `out`.
template <typename T>
void encode_to(std::string& out, const T& value) {
  detail::put(out, value);
}
template <typename T>
void encode_to(PayloadWriter& out, const T& value) {
  out.reserve(out.size() + detail::encoded_size(value));
  detail::put(out, value);
}

/// The value that `bytes` hold: all of them, nothing left over. Safe on any input: a claimed length that the remaining bytes cannot
/// hold is refused before anything is allocated. Errors: invalid, saying what was missing and where.
template <typename T>
Result<T> decode(std::span<const std::byte> bytes) {
  static_assert(std::is_default_constructible_v<T>);
  T value{};
  detail::Reader reader{bytes};
  if (!detail::get(reader, value) || !reader.at_end()) return Failure(reader.error());
  return value;
}
template <typename T>
Result<T> decode(std::string_view bytes) {
  return decode<T>(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

/// A hash of how T is laid out on the wire: kinds, widths, order and nesting, valid enumerators; no names of types or members. Equal
/// for two programs exactly when (up to collisions of 64 bits) each reads what the other writes.
template <typename T>
constexpr std::uint64_t schema_hash() {
  return detail::schema<std::remove_cvref_t<T>>();
}

}  // namespace teson::net
