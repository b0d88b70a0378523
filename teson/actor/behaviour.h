#pragma once

// The side of an actor that runs its endpoints; not for use outside actor/.

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "teson/actor/endpoints.h"
#include "teson/actor/handler_frame.h"
#include "teson/actor/port.h"
#include "teson/base/error.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

/// How the handling of a message has ended.
struct Handled {
  enum class Reply : std::uint8_t {
    written,  ///< the encoded Result is there
    later,    ///< a port brings it
    refused,  ///< the message does not fit the endpoint, no handler has run
  };
  Reply reply = Reply::written;
  std::optional<Error> error;  ///< of the handler, or of the message
};

/// What people call an actor's class and its endpoints. Views of what lives for ever.
struct ClassNames {
  std::string_view class_name;
  std::span<const std::string_view> endpoints;

  std::string_view endpoint(std::uint32_t index) const {
    return index < endpoints.size() ? endpoints[index] : std::string_view("?");
  }
};

/// An actor's handlers without its type.
class Behaviour {
 public:
  virtual ~Behaviour() = default;
  virtual std::uint64_t interface() const = 0;
  virtual ClassNames names() const = 0;
  /// Runs the endpoint within a HandlerFrame and appends the encoded Result to `reply`.
  virtual Handled handle(std::uint32_t endpoint, std::span<const std::byte> arguments,
                         net::PayloadWriter& reply) = 0;
};

template <typename F>
auto guarded(F&& function) -> Result<typename Plain<std::invoke_result_t<F>>::type> {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      function();
      return {};
    } else {
      return function();
    }
  } catch (const std::exception& exception) {
    return fail(ErrorKind::failed, std::string("it threw: ") + exception.what());
  } catch (...) {
    return fail(ErrorKind::failed, "it threw something that is not a std::exception");
  }
}

template <typename R>
std::optional<Error> error_of(Result<R>&& result) {
  if (result) return std::nullopt;
  return std::move(result).error();
}

template <typename T, auto Method>
Handled invoke(T& actor, std::span<const std::byte> bytes, net::PayloadWriter& reply) {
  using Traits = MethodTraits<decltype(Method)>;
  auto arguments = net::decode<typename Traits::Arguments>(bytes);
  if (!arguments) return {Handled::Reply::refused, std::move(arguments).error()};
  if constexpr (Traits::answers_later) {
    auto result = guarded([&] {
      std::apply(
          [&](auto&... args) {
            (actor.*Method)(std::move(args)...,
                            Port<ReplyOf<Method>>(HandlerFrame::current()->reply_path()));
          },
          *arguments);
    });
    return {Handled::Reply::later, error_of(std::move(result))};
  } else {
    Result<ReplyOf<Method>> result = guarded([&] {
      return std::apply([&](auto&... args) { return (actor.*Method)(std::move(args)...); },
                        *arguments);
    });
    net::encode_to(reply, result);
    return {Handled::Reply::written, error_of(std::move(result))};
  }
}

template <typename T, typename List>
struct Table;
template <typename T, auto... Methods>
struct Table<T, Endpoints<Methods...>> {
  using Entry = Handled (*)(T&, std::span<const std::byte>, net::PayloadWriter&);
  static constexpr Entry entries[] = {&invoke<T, Methods>...};
  static constexpr std::string_view names[] = {method_name<Methods>()...};
};

template <typename T>
class TypedBehaviour final : public Behaviour {
 public:
  explicit TypedBehaviour(std::unique_ptr<T> actor) : actor_(std::move(actor)) {}
  std::uint64_t interface() const override {
    constexpr std::uint64_t hash = interface_hash<T>();
    return hash;
  }
  ClassNames names() const override {
    return {class_name<T>(), Table<T, typename T::endpoints>::names};
  }
  Handled handle(std::uint32_t endpoint, std::span<const std::byte> arguments,
                 net::PayloadWriter& reply) override {
    using List = EndpointList<typename T::endpoints>;
    if (endpoint >= List::count) {
      return {Handled::Reply::refused,
              Error{ErrorKind::invalid, "expected an endpoint of " + std::string(class_name<T>()) +
                                            ", found number " + std::to_string(endpoint)}};
    }
    return Table<T, typename T::endpoints>::entries[endpoint](*actor_, arguments, reply);
  }

 private:
  std::unique_ptr<T> actor_;
};

}  // namespace teson::actor::detail
