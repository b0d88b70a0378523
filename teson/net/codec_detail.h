#pragma once

// How codec.h works; not for use outside net/.

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/pfr/core.hpp>
#include <boost/pfr/tuple_size.hpp>

#include "teson/base/check.h"
#include "teson/base/error.h"
#include "teson/net/codec_enum.h"

namespace teson::net::detail {

static_assert(std::endian::native == std::endian::little,
              "the codec copies integers as they lie in memory");

/// Bytes being read. After the first failure everything fails; the first one is told.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t left() const { return bytes_.size() - at_; }
  /// `size` bytes in place, or nullptr.
  const std::byte* take(std::size_t size, const char* what);
  bool refuse(const char* what, std::uint64_t found);
  /// True if nothing is left over; else the error says how much.
  bool at_end();
  const Error& error() const { return error_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  Error error_;
};

template <typename T, template <typename...> typename Template>
inline constexpr bool is_instance = false;
template <template <typename...> typename Template, typename... Args>
inline constexpr bool is_instance<Template<Args...>, Template> = true;
template <typename T>
inline constexpr bool is_std_array = false;
template <typename T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <typename T>
inline constexpr bool is_duration = false;
template <typename Rep, typename Period>
inline constexpr bool is_duration<std::chrono::duration<Rep, Period>> = true;
template <typename T>
inline constexpr bool is_instant = false;
template <typename Clock, typename D>
inline constexpr bool is_instant<std::chrono::time_point<Clock, D>> = true;
template <typename T>
inline constexpr bool is_result = false;
template <typename T>
inline constexpr bool is_result<tl::expected<T, Error>> = true;

/// Copied bit by bit, one or many.
template <typename T>
concept Plain = (std::is_arithmetic_v<T> && !std::same_as<T, bool> && sizeof(T) <= 8) ||
                std::same_as<T, std::byte>;
template <typename T>
concept Text = std::same_as<T, std::string> || std::same_as<T, std::string_view>;
template <typename T>
concept ByteView = std::same_as<T, std::span<const std::byte>>;
template <typename T>
concept TupleLike = is_instance<T, std::pair> || is_instance<T, std::tuple>;
template <typename T>
concept PlainVector = is_instance<T, std::vector> && Plain<typename T::value_type>;
template <typename T>
concept Sequence =
    (is_instance<T, std::vector> && !Plain<typename T::value_type>) || is_instance<T, std::map>;

template <typename T>
constexpr void require_aggregate() {
  static_assert(std::is_aggregate_v<T> && std::is_class_v<T>,
                "the codec knows numbers, scoped enums, standard containers and structs without "
                "constructors");
}

// --- how large --------------------------------------------------------------------------------------------------------

inline constexpr std::size_t length_bytes = 8;

/// The fewest bytes that a T can take: bounds how many elements the remaining bytes may claim.
template <typename T>
constexpr std::size_t smallest() {
  if constexpr (Plain<T> || std::is_enum_v<T>) {
    return sizeof(T);
  } else if constexpr (std::same_as<T, bool> || is_instance<T, std::optional> ||
                       is_instance<T, std::variant> || is_result<T>) {
    return 1;
  } else if constexpr (is_duration<T> || is_instant<T> || Text<T> || ByteView<T> ||
                       PlainVector<T> || Sequence<T>) {
    return 8;
  } else if constexpr (is_std_array<T>) {
    return std::tuple_size_v<T> * smallest<typename T::value_type>();
  } else if constexpr (TupleLike<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (std::size_t{0} + ... + smallest<std::remove_cvref_t<std::tuple_element_t<I, T>>>());
    }(std::make_index_sequence<std::tuple_size_v<T>>{});
  } else {
    require_aggregate<T>();
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (std::size_t{0} + ... + smallest<boost::pfr::tuple_element_t<I, T>>());
    }(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
  }
}

template <typename T>
std::size_t encoded_size(const T& value) {
  if constexpr (Text<T> || ByteView<T>) {
    return length_bytes + value.size();
  } else if constexpr (PlainVector<T>) {
    return length_bytes + value.size() * sizeof(typename T::value_type);
  } else if constexpr (Sequence<T>) {
    std::size_t size = length_bytes;
    for (const auto& element : value)
      size += encoded_size<typename T::value_type>(element);
    return size;
  } else if constexpr (is_instance<T, std::optional>) {
    return 1 + (value ? encoded_size(*value) : 0);
  } else if constexpr (is_instance<T, std::variant>) {
    return 1 + std::visit([](const auto& held) { return encoded_size(held); }, value);
  } else if constexpr (is_result<T>) {
    if (!value) return 1 + encoded_size(value.error());
    if constexpr (!std::is_void_v<typename T::value_type>) return 1 + encoded_size(*value);
    return 1;
  } else if constexpr (is_std_array<T>) {
    if constexpr (Plain<typename T::value_type>) return smallest<T>();
    std::size_t size = 0;
    for (const auto& element : value)
      size += encoded_size(element);
    return size;
  } else if constexpr (TupleLike<T>) {
    return std::apply(
        [](const auto&... parts) { return (std::size_t{0} + ... + encoded_size(parts)); }, value);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    std::size_t size = 0;
    boost::pfr::for_each_field(value, [&](const auto& field) { size += encoded_size(field); });
    return size;
  } else {
    return smallest<T>();
  }
}

// --- out --------------------------------------------------------------------------------------------------------------

/// `Out`: a std::string or a PayloadWriter.
template <typename Out>
void put_raw(Out& out, const void* data, std::size_t size) {
  if (size > 0) out.append(static_cast<const char*>(data), size);
}
template <typename Out>
void put_length(Out& out, std::uint64_t length) {
  put_raw(out, &length, sizeof(length));
}

template <typename T, typename Out>
void put(Out& out, const T& value) {
  if constexpr (Plain<T>) {
    put_raw(out, &value, sizeof(T));
  } else if constexpr (std::same_as<T, bool>) {
    out.push_back(value ? 1 : 0);
  } else if constexpr (std::is_enum_v<T>) {
    TESON_CHECK(is_enumerator(value), static_cast<std::int64_t>(value));
    put_raw(out, &value, sizeof(T));
  } else if constexpr (is_duration<T>) {
    put(out, static_cast<std::int64_t>(value.count()));
  } else if constexpr (is_instant<T>) {
    put(out, value.time_since_epoch());
  } else if constexpr (Text<T> || ByteView<T>) {
    put_length(out, value.size());
    put_raw(out, value.data(), value.size());
  } else if constexpr (PlainVector<T>) {
    put_length(out, value.size());
    put_raw(out, value.data(), value.size() * sizeof(typename T::value_type));
  } else if constexpr (Sequence<T>) {
    put_length(out, value.size());
    for (const auto& element : value)
      put<typename T::value_type>(out, element);
  } else if constexpr (is_std_array<T>) {
    for (const auto& element : value)
      put(out, element);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... parts) { (put(out, parts), ...); }, value);
  } else if constexpr (is_instance<T, std::optional>) {
    put(out, value.has_value());
    if (value) put(out, *value);
  } else if constexpr (is_instance<T, std::variant>) {
    static_assert(std::variant_size_v<T> < 256);
    put(out, static_cast<std::uint8_t>(value.index()));
    std::visit([&](const auto& held) { put(out, held); }, value);
  } else if constexpr (is_result<T>) {
    put(out, value.has_value());
    if (!value) {
      put(out, value.error());
    } else if constexpr (!std::is_void_v<typename T::value_type>) {
      put(out, *value);
    }
  } else {
    require_aggregate<T>();
    boost::pfr::for_each_field(value, [&](const auto& field) { put(out, field); });
  }
}

// --- in ---------------------------------------------------------------------------------------------------------------

template <typename T>
bool get(Reader& reader, T& value);

/// A length that the remaining bytes can hold, each element taking at least `each` bytes.
bool get_length(Reader& reader, std::size_t each, std::size_t& length);

template <typename T>
bool get_vector(Reader& reader, T& value) {
  using Element = typename T::value_type;
  static_assert(smallest<Element>() > 0, "elements without bytes could be claimed without bound");
  std::size_t length = 0;
  if (!get_length(reader, smallest<Element>(), length)) return false;
  if constexpr (Plain<Element>) {
    const std::byte* from = reader.take(length * sizeof(Element), "elements");
    if (from == nullptr) return false;
    if constexpr (sizeof(Element) == 1) {
      const auto* first = reinterpret_cast<const Element*>(from);
      value.assign(first, first + length);
    } else {
      value.resize(length);
      if (length > 0) std::memcpy(value.data(), from, length * sizeof(Element));
    }
  } else {
    value.clear();
    for (std::size_t i = 0; i < length; ++i) {
      Element element{};
      if (!get(reader, element)) return false;
      value.push_back(std::move(element));
    }
  }
  return true;
}

template <typename T>
bool get_map(Reader& reader, T& value) {
  constexpr std::size_t each =
      smallest<typename T::key_type>() + smallest<typename T::mapped_type>();
  static_assert(each > 0, "elements without bytes could be claimed without bound");
  std::size_t length = 0;
  if (!get_length(reader, each, length)) return false;
  value.clear();
  for (std::size_t i = 0; i < length; ++i) {
    typename T::key_type key{};
    typename T::mapped_type mapped{};
    if (!get(reader, key) || !get(reader, mapped)) return false;
    if (!value.emplace(std::move(key), std::move(mapped)).second)
      return reader.refuse("each key once, found one twice, element", i);
  }
  return true;
}

template <typename T>
bool get_variant(Reader& reader, T& value) {
  std::uint8_t index = 0;
  if (!get(reader, index)) return false;
  if (index >= std::variant_size_v<T>) return reader.refuse("the index of a variant, found", index);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    bool good = false;
    (void)((I == index && (good = get(reader, value.template emplace<I>()), true)) || ...);
    return good;
  }(std::make_index_sequence<std::variant_size_v<T>>{});
}

template <typename T>
bool get_result(Reader& reader, T& value) {
  bool present = false;
  if (!get(reader, present)) return false;
  if (!present) {
    Error error;
    if (!get(reader, error)) return false;
    value = Failure(std::move(error));
    return true;
  }
  if constexpr (std::is_void_v<typename T::value_type>) {
    value = {};
    return true;
  } else {
    value = typename T::value_type{};
    return get(reader, *value);
  }
}

template <typename T>
bool get_view(Reader& reader, T& value) {
  std::size_t length = 0;
  if (!get_length(reader, 1, length)) return false;
  const std::byte* from = reader.take(length, "bytes");
  if (from == nullptr) return false;
  if constexpr (ByteView<T>) {
    value = T(from, length);
  } else {
    value = T(reinterpret_cast<const char*>(from), length);
  }
  return true;
}

template <typename T>
bool get(Reader& reader, T& value) {
  if constexpr (Plain<T>) {
    const std::byte* from = reader.take(sizeof(T), "a number");
    if (from == nullptr) return false;
    std::memcpy(&value, from, sizeof(T));
    return true;
  } else if constexpr (std::same_as<T, bool>) {
    const std::byte* from = reader.take(1, "a bool");
    if (from == nullptr) return false;
    const auto found = static_cast<std::uint8_t>(*from);
    if (found > 1) return reader.refuse("a bool (0 or 1), found", found);
    value = found == 1;
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    if (!get(reader, number)) return false;
    value = static_cast<T>(number);
    return is_enumerator(value) ||
           reader.refuse("a known enumerator, found", static_cast<std::uint64_t>(number));
  } else if constexpr (is_duration<T>) {
    std::int64_t count = 0;
    if (!get(reader, count)) return false;
    value = T(static_cast<typename T::rep>(count));
    return true;
  } else if constexpr (is_instant<T>) {
    typename T::duration since{};
    if (!get(reader, since)) return false;
    value = T(since);
    return true;
  } else if constexpr (Text<T> || ByteView<T>) {
    return get_view(reader, value);
  } else if constexpr (is_instance<T, std::vector>) {
    return get_vector(reader, value);
  } else if constexpr (is_instance<T, std::map>) {
    return get_map(reader, value);
  } else if constexpr (is_std_array<T>) {
    for (auto& element : value) {
      if (!get(reader, element)) return false;
    }
    return true;
  } else if constexpr (TupleLike<T>) {
    return std::apply([&](auto&... parts) { return (true && ... && get(reader, parts)); }, value);
  } else if constexpr (is_instance<T, std::optional>) {
    bool present = false;
    if (!get(reader, present)) return false;
    if (!present) return value.reset(), true;
    return get(reader, value.emplace());
  } else if constexpr (is_instance<T, std::variant>) {
    return get_variant(reader, value);
  } else if constexpr (is_result<T>) {
    return get_result(reader, value);
  } else {
    require_aggregate<T>();
    bool good = true;
    boost::pfr::for_each_field(value, [&](auto& field) { good = good && get(reader, field); });
    return good;
  }
}

// --- structure --------------------------------------------------------------------------------------------------------

constexpr std::uint64_t fold(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

/// What kind of thing stands at a place on the wire. The numbers are part of every schema hash.
enum class Tag : std::uint64_t {
  number = 1,
  real,
  boolean,
  enumeration,
  duration,
  instant,
  text,
  sequence,
  array,
  tuple,
  optional,
  variant,
  result,
  record,
  none
};

template <typename... Parts>
constexpr std::uint64_t fold_tag(Tag tag, Parts... parts) {
  std::uint64_t hash = fold(0, static_cast<std::uint64_t>(tag));
  ((hash = fold(hash, parts)), ...);
  return hash;
}

template <typename T>
constexpr std::uint64_t schema();

template <typename T, template <std::size_t, typename> typename ElementT, std::size_t Count>
constexpr std::uint64_t schema_of_parts(Tag tag) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return fold_tag(tag, std::uint64_t{Count},
                    schema<std::remove_cvref_t<typename ElementT<I, T>::type>>()...);
  }(std::make_index_sequence<Count>{});
}

template <typename T>
constexpr std::uint64_t schema() {
  if constexpr (std::is_void_v<T>) {
    return fold_tag(Tag::none);
  } else if constexpr (std::same_as<T, std::byte> || std::same_as<T, char>) {
    return schema<std::uint8_t>();
  } else if constexpr (std::is_floating_point_v<T>) {
    return fold_tag(Tag::real, std::uint64_t{sizeof(T)});
  } else if constexpr (std::same_as<T, bool>) {
    return fold_tag(Tag::boolean);
  } else if constexpr (std::is_integral_v<T>) {
    return fold_tag(Tag::number, std::uint64_t{sizeof(T)}, std::uint64_t{std::is_signed_v<T>});
  } else if constexpr (std::is_enum_v<T>) {
    return fold_tag(Tag::enumeration, std::uint64_t{sizeof(T)}, enumerators<T>());
  } else if constexpr (is_duration<T>) {
    return fold_tag(Tag::duration, static_cast<std::uint64_t>(T::period::num),
                    static_cast<std::uint64_t>(T::period::den));
  } else if constexpr (is_instant<T>) {
    return fold_tag(Tag::instant, schema<typename T::duration>());
  } else if constexpr (Text<T>) {
    return fold_tag(Tag::text);
  } else if constexpr (ByteView<T>) {
    return schema<std::vector<std::byte>>();
  } else if constexpr (is_instance<T, std::vector>) {
    return fold_tag(Tag::sequence, schema<typename T::value_type>());
  } else if constexpr (is_instance<T, std::map>) {
    return fold_tag(Tag::sequence, schema<typename T::key_type>(),
                    schema<typename T::mapped_type>());
  } else if constexpr (is_std_array<T>) {
    return fold_tag(Tag::array, std::uint64_t{std::tuple_size_v<T>},
                    schema<typename T::value_type>());
  } else if constexpr (TupleLike<T>) {
    return schema_of_parts<T, std::tuple_element, std::tuple_size_v<T>>(Tag::tuple);
  } else if constexpr (is_instance<T, std::optional>) {
    return fold_tag(Tag::optional, schema<typename T::value_type>());
  } else if constexpr (is_instance<T, std::variant>) {
    return schema_of_parts<T, std::variant_alternative, std::variant_size_v<T>>(Tag::variant);
  } else if constexpr (is_result<T>) {
    return fold_tag(Tag::result, schema<typename T::value_type>(), schema<Error>());
  } else {
    require_aggregate<T>();
    return schema_of_parts<T, boost::pfr::tuple_element, boost::pfr::tuple_size_v<T>>(Tag::record);
  }
}

}  // namespace teson::net::detail
