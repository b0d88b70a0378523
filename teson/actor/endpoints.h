#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "teson/base/error.h"
#include "teson/net/codec.h"

namespace teson::actor {

/// What an actor class offers. The class, usually an interface of pure virtual functions that the
/// implementation derives from, lists its endpoints once; caller and callee may be two programs
/// that share only this header:
///
///     class Worker {
///      public:
///       virtual ~Worker() = default;
///       virtual Result<Started> start(const Config& config) = 0;  // an error goes to the caller
///       virtual int status() = 0;
///       virtual void stop_at_boundary() = 0;
///       virtual void evaluate(int step, actor::Port<double> loss) = 0;  // answers later: port.h
///       using endpoints = actor::Endpoints<&Worker::start, &Worker::status,
///                                          &Worker::stop_at_boundary, &Worker::evaluate>;
///       using arguments = std::tuple<std::string>;  // of spawn; may be left out
///     };
///
/// Arguments and replies are any types that net/codec.h takes, by value or const reference. A
/// std::span<const std::byte> or std::string_view argument points into the message and is valid
/// while the handler runs.
///
/// An error of a handler, returned or thrown, goes to the caller, and the actor lives on. Where
/// nobody waits for it (a cast), or where the handler has given its reply into the hands of others
/// (a port), the actor ends, and its owner is told.
template <auto... Methods>
struct Endpoints {};

/// The last parameter of an endpoint that answers later (port.h).
template <typename R>
class Port;

namespace detail {

template <typename R>
struct Plain {
  using type = R;
};
template <typename R>
struct Plain<Result<R>> {
  using type = R;
};

template <typename T>
struct PortOf;
template <typename R>
struct PortOf<Port<R>> {
  using Value = R;
};
template <typename T>
concept IsPort = requires { typename PortOf<std::remove_cvref_t<T>>::Value; };
template <typename... A>
inline constexpr bool ends_with_port = (false, ..., IsPort<A>);

template <typename Tuple, typename = std::make_index_sequence<std::tuple_size_v<Tuple> - 1>>
struct WithoutLast;
template <typename... A, std::size_t... I>
struct WithoutLast<std::tuple<A...>, std::index_sequence<I...>> {
  using Last = std::tuple_element_t<sizeof...(A) - 1, std::tuple<A...>>;
  using type = std::tuple<std::tuple_element_t<I, std::tuple<A...>>...>;
};

/// What a member function takes and yields as an endpoint.
template <typename R, typename... A>
struct Signature {
  using Arguments = std::tuple<std::remove_cvref_t<A>...>;
  using Reply = typename Plain<R>::type;
  static constexpr bool answers_later = false;
};
template <typename R, typename... A>
  requires ends_with_port<A...>
struct Signature<R, A...> {
  static_assert(std::is_void_v<R>, "an endpoint with a port answers through it and returns void");
  using Split = WithoutLast<std::tuple<std::remove_cvref_t<A>...>>;
  using Arguments = typename Split::type;
  using Reply = typename PortOf<typename Split::Last>::Value;
  static constexpr bool answers_later = true;
};

template <typename Method>
struct MethodTraits;
template <typename C, typename R, typename... A>
struct MethodTraits<R (C::*)(A...)> : Signature<R, A...> {};
template <typename C, typename R, typename... A>
struct MethodTraits<R (C::*)(A...) const> : Signature<R, A...> {};
template <typename C, typename R, typename... A>
struct MethodTraits<R (C::*)(A...) noexcept> : Signature<R, A...> {};
template <typename C, typename R, typename... A>
struct MethodTraits<R (C::*)(A...) const noexcept> : Signature<R, A...> {};

template <typename T>
struct SpawnArguments {
  using type = std::tuple<>;
};
template <typename T>
  requires requires { typename T::arguments; }
struct SpawnArguments<T> {
  using type = typename T::arguments;
};

constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : text)
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  return hash;
}

/// The last name of a qualified one. Compilers print the rest differently.
constexpr std::string_view last_name(std::string_view text) {
  const std::size_t colon = text.rfind("::");
  if (colon != std::string_view::npos) text.remove_prefix(colon + 2);
  return text;
}
constexpr std::string_view printed(std::string_view function, std::string_view parameter) {
  const std::size_t at = function.rfind(parameter);
  function.remove_prefix(at + parameter.size());
  return function.substr(0, function.find_first_of("];"));
}
template <typename T>
constexpr std::string_view class_name() {
  return last_name(printed(__PRETTY_FUNCTION__, "T = "));
}
template <auto Method>
constexpr std::string_view method_name() {
  return last_name(printed(__PRETTY_FUNCTION__, "Method = "));
}

template <auto Method>
struct Constant {};

template <typename List>
struct EndpointList;
template <auto... Methods>
struct EndpointList<Endpoints<Methods...>> {
  static constexpr std::size_t count = sizeof...(Methods);

  template <auto Method>
  static constexpr std::size_t index() {
    std::size_t at = 0;
    const bool found =
        ((std::is_same_v<Constant<Methods>, Constant<Method>> || (++at, false)) || ...);
    return found ? at : count;
  }
  template <typename T>
  static constexpr std::uint64_t hash() {
    std::uint64_t hash = hash_text(class_name<T>());
    hash = net::detail::fold(hash, net::schema_hash<typename SpawnArguments<T>::type>());
    ((hash = net::detail::fold(
          net::detail::fold(
              net::detail::fold(hash, hash_text(method_name<Methods>())),
              net::schema_hash<typename MethodTraits<decltype(Methods)>::Arguments>()),
          net::schema_hash<typename MethodTraits<decltype(Methods)>::Reply>())),
     ...);
    return hash;
  }
};

}  // namespace detail

/// What a call of an endpoint yields: R for one that returns R or Result<R>, or ends in a Port<R>.
template <auto Method>
using ReplyOf = typename detail::MethodTraits<decltype(Method)>::Reply;

/// One hash over the names, arguments and replies of all endpoints of T, and its spawn arguments.
/// Every message to an actor carries it: a program built from another version of the interface is
/// refused with both hashes named, never half understood.
template <typename T>
constexpr std::uint64_t interface_hash() {
  return detail::EndpointList<typename T::endpoints>::template hash<T>();
}

namespace detail {

/// Which endpoint of which interface.
struct EndpointId {
  std::uint64_t interface = 0;
  std::uint32_t index = 0;
};
template <typename T, auto Method>
constexpr EndpointId endpoint_id() {
  constexpr std::size_t index = EndpointList<typename T::endpoints>::template index<Method>();
  static_assert(index < EndpointList<typename T::endpoints>::count,
                "this member function is not in the class's list of endpoints");
  // A constant, or it would be computed at each call.
  constexpr std::uint64_t hash = interface_hash<T>();
  return {hash, static_cast<std::uint32_t>(index)};
}

template <typename Parameter, typename Arg>
std::size_t argument_bytes(const Arg& arg) {
  if constexpr (std::is_same_v<Arg, Parameter>) return net::encoded_size(arg);
  return 0;
}

/// The bytes of an argument list, each argument converted to its parameter's type as in an ordinary
/// call.
template <typename Parameters, typename Out, typename... Args>
void encode_arguments(Out& out, const Args&... args) {
  static_assert(std::tuple_size_v<Parameters> == sizeof...(Args),
                "wrong number of arguments for this endpoint");
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    // Room for all of them at once; one that is converted gets its own below.
    const std::size_t bytes =
        (std::size_t{0} + ... + argument_bytes<std::tuple_element_t<I, Parameters>>(args));
    out.reserve(out.size() + bytes);
    [[maybe_unused]] const auto one = [&]<typename Parameter, typename Arg>(
                                          std::type_identity<Parameter>, const Arg& arg) {
      static_assert(std::is_convertible_v<const Arg&, Parameter>,
                    "an argument does not convert to its parameter");
      if constexpr (std::is_same_v<Arg, Parameter>) {
        net::detail::put(out, arg);
      } else {
        net::encode_to(out, static_cast<Parameter>(arg));
      }
    };
    (one(std::type_identity<std::tuple_element_t<I, Parameters>>{}, args), ...);
  }(std::index_sequence_for<Args...>{});
}

}  // namespace detail
}  // namespace teson::actor
