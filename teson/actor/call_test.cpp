// What calls give back, and reductions, without processes: the test is the mesh that answers.
#include "teson/actor/call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "teson/actor/reduce.h"

namespace teson::actor {
namespace {

using namespace std::chrono_literals;
using detail::PendingCall;
using detail::PendingTable;
using detail::RawReply;

template <typename R>
Result<RawReply> raw(const Result<R>& result) {
  const std::string bytes = net::encode(result);
  RawReply reply{net::Buffer(bytes.size()), 0};
  std::memcpy(reply.buffer.room().data(), bytes.data(), bytes.size());
  return reply;
}
Failure failure(std::string why) {
  return fail(ErrorKind::failed, std::move(why));
}

/// A mesh of so many ranks, whose replies the test gives by hand.
class CallTest : public ::testing::Test {
 protected:
  std::shared_ptr<PendingCall> begin(std::size_t ranks, Duration deadline = 10s) {
    std::vector<std::uint64_t> procs(ranks);
    std::iota(procs.begin(), procs.end(), 100);
    return table->begin(std::move(procs), std::chrono::steady_clock::now() + deadline);
  }
  template <typename R>
  void answer(const std::shared_ptr<PendingCall>& call, std::size_t rank, const Result<R>& result) {
    table->reply(call->id(), 100 + rank, std::move(*raw(result)));
  }
  /// The reduction of these replies when they arrive in this order.
  template <typename R, typename Operation>
  auto reduced(const Operation& operation, const std::vector<Result<R>>& replies,
               const std::vector<std::size_t>& order) {
    auto call = begin(replies.size());
    for (const std::size_t rank : order)
      answer<R>(call, rank, replies[rank]);
    return detail::reduce(Stream<R>(call), operation);
  }
  template <typename R, typename Operation>
  auto reduced(const Operation& operation, const std::vector<Result<R>>& replies) {
    std::vector<std::size_t> order(replies.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return reduced<R>(operation, replies, order);
  }

  std::shared_ptr<PendingTable> table = std::make_shared<PendingTable>();
};

TEST_F(CallTest, a_stream_yields_replies_in_the_order_they_come_and_ends) {
  auto pending = begin(4, 50ms);
  Stream<int> stream(pending);
  answer<int>(pending, 2, 20);
  answer<int>(pending, 0, failure("no"));
  auto one = stream.next();
  ASSERT_TRUE(one);
  EXPECT_EQ(one->rank, 2U);
  EXPECT_EQ(one->reply, 20);
  one = stream.next();
  EXPECT_EQ(one->rank, 0U);
  EXPECT_EQ(one->reply.error().message, "no");
  table->fail_proc(103, {ErrorKind::disconnected, "dead"});
  answer<int>(pending, 3, 30);
  one = stream.next();
  EXPECT_EQ(one->rank, 3U);
  EXPECT_EQ(one->reply.error().message, "dead") << "what came first counts";
  one = stream.next();
  EXPECT_EQ(one->rank, 1U);
  EXPECT_EQ(one->reply.error().kind, ErrorKind::timed_out);
  EXPECT_NE(one->reply.error().message.find("proc 101"), std::string::npos);
  EXPECT_FALSE(stream.next());
  EXPECT_FALSE(stream.next());
}

TEST_F(CallTest, a_quorum_is_not_waited_for_longer_than_it_takes) {
  auto pending = begin(5);
  Call<int> call(pending);
  answer<int>(pending, 4, 40);
  answer<int>(pending, 1, failure("no"));
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    answer<int>(pending, 2, 20);
  });
  const auto answers = call.wait_for(Quorum{2});
  later.join();
  EXPECT_TRUE(answers.quorum);
  ASSERT_EQ(answers.replies.size(), 3U);
  EXPECT_EQ(answers.replies[0].rank, 1U);
  EXPECT_EQ(answers.replies[0].reply.error().message, "no");
  EXPECT_EQ(answers.replies[1].reply, 20);
  EXPECT_EQ(answers.replies[2].reply, 40);
  EXPECT_EQ(answers.unanswered, (std::vector<std::size_t>{0, 3}));
}

TEST_F(CallTest, a_quorum_that_cannot_be_any_more_is_told_at_once) {
  auto pending = begin(3);
  Call<int> call(pending);
  answer<int>(pending, 0, failure("no"));
  answer<int>(pending, 2, failure("neither"));
  const auto answers = call.wait_for(Quorum{2});
  EXPECT_FALSE(answers.quorum);
  EXPECT_EQ(answers.unanswered, std::vector<std::size_t>{1});
  EXPECT_FALSE(Call<int>(begin(3)).wait_for(Quorum{4}).quorum) << "more than there are";
  const auto late = Call<int>(begin(2, 20ms)).wait_for(any);
  EXPECT_FALSE(late.quorum);
  ASSERT_EQ(late.replies.size(), 2U) << "the deadline ends every slot";
  EXPECT_EQ(late.replies[1].reply.error().kind, ErrorKind::timed_out);
}

TEST_F(CallTest, what_comes_after_the_quorum_is_dropped_and_keeps_no_memory) {
  auto pending = begin(2);
  const std::uint64_t id = pending->id();
  answer<int>(pending, 0, 1);
  Call<int> call(std::move(pending));
  EXPECT_EQ(table->size(), 1U);
  EXPECT_TRUE(call.wait_for(any).quorum);
  EXPECT_EQ(table->size(), 0U);
  table->reply(id, 101, std::move(*raw<int>(2)));
  EXPECT_EQ(table->size(), 0U);
}

TEST_F(CallTest, is_waited_for_once_and_from_any_thread) {
  auto pending = begin(1);
  answer<int>(pending, 0, 7);
  CallOne<int> call(pending);
  int value = 0;
  std::thread([&value, moved = std::move(call)]() mutable { value = *moved.wait(); }).join();
  EXPECT_EQ(value, 7);
  CallOne<int> twice(begin(1, 0ms));
  EXPECT_EQ(twice.wait().error().kind, ErrorKind::timed_out);
  EXPECT_DEATH((void)twice.wait(), "a call is waited for once");
}

TEST_F(CallTest, floating_sums_have_the_same_bits_in_any_order_of_arrival) {
  const std::vector<Result<double>> replies{1e16, 1.0, -1e16, 3.14159, 1e-3};
  double expected = 0;
  for (const auto& reply : replies)
    expected = expected == 0 ? *reply : expected + *reply;
  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  do {
    const auto sum = reduced<double>(Sum{}, replies, order);
    ASSERT_TRUE(sum);
    EXPECT_EQ(sum->value, expected);
    EXPECT_EQ(sum->ranks, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(CallTest, reduces_integers_text_and_nothing) {
  EXPECT_EQ(reduced<int>(Sum{}, {3, 4, 5}, {2, 0, 1})->value, 12);
  const int most = std::numeric_limits<int>::max();
  EXPECT_EQ(reduced<int>(Sum{}, {most, 1})->value, std::numeric_limits<int>::min());
  EXPECT_EQ(reduced<int>(Min{}, {3, -4, 5}, {2, 0, 1})->value, -4);
  EXPECT_EQ(reduced<int>(Max{}, {3, -4, 5}, {2, 0, 1})->value, 5);
  EXPECT_EQ(reduced<std::string>(Sum{}, {"a", "b", "c"}, {2, 1, 0})->value, "abc");
  EXPECT_EQ(reduced<std::string>(Gather{}, {"a", "b", "c"}, {1, 2, 0})->value,
            (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reduced<void>(Count{}, {{}, {}, {}}, {1, 2, 0})->value, 3U);
  const auto text = [](std::string all, int one) { return all + "," + std::to_string(one); };
  EXPECT_EQ(reduced<int>(Fold{std::string("x"), text}, {1, 2, 3}, {2, 1, 0})->value, "x,1,2,3");
}

TEST_F(CallTest, one_nan_makes_the_smallest_and_the_largest_nan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<Result<double>>& replies :
       {std::vector<Result<double>>{nan, 1.0, 2.0}, {1.0, nan, 2.0}, {1.0, 2.0, nan}}) {
    EXPECT_TRUE(std::isnan(reduced<double>(Min{}, replies)->value));
    EXPECT_TRUE(std::isnan(reduced<double>(Max{}, replies)->value));
  }
  EXPECT_EQ(reduced<double>(Min{}, {2.0, 1.0})->value, 1.0);
  EXPECT_EQ(reduced<double>(Max{}, {2.0, 1.0})->value, 2.0);
}

TEST_F(CallTest, a_reduction_names_every_rank_that_failed) {
  const auto sum = reduced<int>(Sum{}, {1, failure("broken"), 3, failure("worn")}, {3, 0, 2, 1});
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().kind, ErrorKind::failed);
  EXPECT_EQ(sum.error().message,
            "2 of 4 ranks failed: rank 1: failed: broken; rank 3: failed: worn");
  EXPECT_FALSE(reduced<void>(Count{}, {{}, failure("broken")}));
}

TEST_F(CallTest, first_is_content_with_one) {
  const auto first = reduced<int>(First{}, {failure("no"), 2, 3}, {0, 2, 1});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->value, 3);
  EXPECT_EQ(first->ranks, std::vector<std::size_t>{2});
  EXPECT_FALSE(reduced<int>(First{}, {failure("no"), failure("no")}));
}

}  // namespace
}  // namespace teson::actor
