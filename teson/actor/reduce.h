#pragma once

#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "teson/actor/call.h"
#include "teson/base/check.h"
#include "teson/base/error.h"

namespace teson::actor {

/// One value out of the replies of many ranks:
///
///     TESON_TRY(const auto total, workers.reduce<&Worker::samples>(actor::Sum{}));
///     TESON_TRY(const auto loss, workers.reduce<&Worker::loss>(actor::Max{}));
///     TESON_TRY_VOID(workers.reduce<&Worker::flush>(actor::Count{}));           // a barrier
///
/// It is strict: if one rank fails there is no value, and the error names every rank that failed
/// (First alone is content with one). Replies are folded as they arrive where their order cannot
/// matter, which is for integers under Sum, Min and Max, and under Count; everywhere else in the
/// order of the ranks, each as soon as those before it are there. So the same replies give the same
/// bits, floating-point sums too, whichever rank was faster.

template <typename Value>
struct Reduced {
  Value value;
  std::vector<std::size_t> ranks;  ///< whose replies are in it, ascending
};

/// An operation of one's own is a type like these:
///   Value<R>           what becomes of replies of type R (std::monostate where an endpoint yields
///                      nothing); has a default
///   any_order<R>       whether replies may be folded as they arrive
///   first(reply)       the value of one reply
///   next(value, reply) takes one more into it
/// They are called on the thread that calls reduce.

/// Adds with +. Integers wrap around.
struct Sum {
  template <typename R>
  using Value = R;
  template <typename R>
  static constexpr bool any_order = std::is_integral_v<R>;
  template <typename R>
  R first(R reply) const {
    return reply;
  }
  template <typename R>
  void next(R& value, R reply) const {
    if constexpr (std::is_integral_v<R> && std::is_signed_v<R>) {
      using Unsigned = std::make_unsigned_t<R>;
      value = static_cast<R>(static_cast<Unsigned>(value) + static_cast<Unsigned>(reply));
    } else {
      value = std::move(value) + std::move(reply);
    }
  }
};

namespace detail {

/// What operations have in common whose value is one of the replies.
struct OneOfReplies {
  template <typename R>
  using Value = R;
  template <typename R>
  static constexpr bool any_order = std::is_integral_v<R>;
  template <typename R>
  R first(R reply) const {
    return reply;
  }

 protected:
  /// What equals nothing, not even itself.
  template <typename R>
  static bool is_nan(const R& value) {
    return !std::equal_to<>()(value, value);
  }
};

}  // namespace detail

/// The smallest; among equals that of the lowest rank. One NaN makes the result NaN.
struct Min : detail::OneOfReplies {
  template <typename R>
  void next(R& value, R reply) const {
    if (reply < value || (is_nan(reply) && !is_nan(value))) value = std::move(reply);
  }
};

/// The largest; as Min.
struct Max : detail::OneOfReplies {
  template <typename R>
  void next(R& value, R reply) const {
    if (value < reply || (is_nan(reply) && !is_nan(value))) value = std::move(reply);
  }
};

/// How many ranks have answered: all of them, so it is a barrier.
struct Count {
  template <typename R>
  using Value = std::size_t;
  template <typename R>
  static constexpr bool any_order = true;
  template <typename R>
  std::size_t first(const R&) const {
    return 1;
  }
  template <typename R>
  void next(std::size_t& value, const R&) const {
    ++value;
  }
};

/// All replies, by rank.
struct Gather {
  template <typename R>
  using Value = std::vector<R>;
  template <typename R>
  static constexpr bool any_order = false;
  template <typename R>
  std::vector<R> first(R reply) const {
    std::vector<R> value;
    value.push_back(std::move(reply));
    return value;
  }
  template <typename R>
  void next(std::vector<R>& value, R reply) const {
    value.push_back(std::move(reply));
  }
};

/// The first value that arrives. The other ranks are not waited for; an error only if none has one.
struct First {
  template <typename R>
  using Value = R;
};

/// value = function(value, reply), beginning with `initial`, in the order of the ranks.
template <typename Initial, typename Function>
struct Fold {
  template <typename R>
  using Value = Initial;
  template <typename R>
  static constexpr bool any_order = false;
  template <typename R>
  Initial first(R reply) const {
    return function(initial, std::move(reply));
  }
  template <typename R>
  void next(Initial& value, R reply) const {
    value = function(std::move(value), std::move(reply));
  }

  Initial initial;
  Function function;
};
template <typename Initial, typename Function>
Fold(Initial, Function) -> Fold<Initial, Function>;

namespace detail {

struct RankError {
  std::size_t rank = 0;
  Error error;
};
/// "2 of 4 ranks failed: rank 1: …; rank 3: …", of the kind of the first.
Error ranks_failed(std::size_t size, std::vector<RankError> failures);

template <typename R>
using ReplyValue = std::conditional_t<std::is_void_v<R>, std::monostate, R>;
template <typename R, typename Operation>
using ReducedOf = Reduced<typename Operation::template Value<ReplyValue<R>>>;

template <typename R>
ReplyValue<R> value_of(Result<R>& result) {
  if constexpr (std::is_void_v<R>) {
    return {};
  } else {
    return std::move(*result);
  }
}

/// Takes replies in any order and folds them in an order that does not depend on it.
template <typename R, typename Operation>
class Folder {
 public:
  using Item = ReplyValue<R>;
  using Value = typename Operation::template Value<Item>;

  Folder(const Operation& operation, std::size_t size) : operation_(operation), early_(size) {}

  void take(std::size_t rank, Item item) {
    if constexpr (Operation::template any_order<Item>) {
      fold(std::move(item));
    } else {
      early_[rank] = std::move(item);
      for (; next_ < early_.size() && early_[next_]; ++next_) {
        fold(std::move(*early_[next_]));
        early_[next_].reset();
      }
    }
  }
  /// Of at least one reply.
  Value result() {
    TESON_CHECK(begun_);
    return std::move(value_);
  }

 private:
  void fold(Item item) {
    if (begun_) {
      operation_.next(value_, std::move(item));
    } else {
      value_ = operation_.first(std::move(item));
      begun_ = true;
    }
  }

  const Operation& operation_;
  std::vector<std::optional<Item>> early_;  ///< replies whose turn has not come
  std::size_t next_ = 0;
  bool begun_ = false;
  Value value_{};
};

template <typename R, typename Operation>
Result<ReducedOf<R, Operation>> reduce(Stream<R> stream, const Operation& operation) {
  Folder<R, Operation> folder(operation, stream.size());
  std::vector<RankError> failures;
  while (auto one = stream.next()) {
    if (!one->reply) {
      failures.push_back({one->rank, std::move(one->reply).error()});
    } else if (failures.empty()) {
      folder.take(one->rank, value_of(one->reply));
    }
  }
  if (!failures.empty()) return Failure(ranks_failed(stream.size(), std::move(failures)));
  std::vector<std::size_t> ranks(stream.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  return ReducedOf<R, Operation>{folder.result(), std::move(ranks)};
}

template <typename R>
Result<ReducedOf<R, First>> reduce(Stream<R> stream, const First&) {
  std::vector<RankError> failures;
  while (auto one = stream.next()) {
    if (one->reply) return ReducedOf<R, First>{value_of(one->reply), {one->rank}};
    failures.push_back({one->rank, std::move(one->reply).error()});
  }
  return Failure(ranks_failed(stream.size(), std::move(failures)));
}

}  // namespace detail
}  // namespace teson::actor
