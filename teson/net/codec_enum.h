#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace teson::net::detail {

/// Whether the compiler has a name for this value of an enum: it prints "E::name" for an enumerator, "(E)7" for other values (E may begin with a
/// parenthesis of its own). The text is only looked at here, at compile time.
template <auto Value>
constexpr bool is_named() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::size_t at = text.rfind("Value = ");
  static_assert(at != std::string_view::npos);
  constexpr std::string_view value = text.substr(at, text.find_last_of(']') - at);
  constexpr std::size_t last = value.find_last_not_of("0123456789");
  return last + 1 == value.size() || value[last] != ')';
}

/// A bit for each value 0 … 63 that is an enumerator.
template <typename E>
constexpr std::uint64_t enumerators() {
  static_assert(std::is_enum_v<E> && !std::is_convertible_v<E, std::underlying_type_t<E>>,
                "only scoped enums go over the wire");
  constexpr std::uint64_t mask = []<std::size_t... I>(std::index_sequence<I...>) {
    return ((std::uint64_t{is_named<static_cast<E>(I)>()} << I) | ...);
  }(std::make_index_sequence<64>{});
  static_assert(mask != 0, "an enum on the wire needs enumerators with values from 0 to 63");
  return mask;
}

template <typename E>
constexpr bool is_enumerator(E value) {
  const auto number = static_cast<std::underlying_type_t<E>>(value);
  if constexpr (std::is_signed_v<decltype(number)>) {
    if (number < 0) return false;
  }
  return static_cast<std::uint64_t>(number) < 64 &&
         ((enumerators<E>() >> static_cast<std::uint64_t>(number)) & 1) != 0;
}

}  // namespace teson::net::detail
