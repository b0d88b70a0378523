// Large arguments and replies between processes of one host.
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "teson/actor/testing/mesh_test_support.h"
#include "teson/net/payload.h"

namespace teson::actor {
namespace {

using namespace testing;

constexpr std::size_t mib = std::size_t{1} << 20;

std::vector<std::byte> some_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(MeshTest, large_arguments_and_replies_arrive_whole) {
  auto mesh = start({{"replica", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  for (const std::size_t size :
       {net::shared_payload_bytes_min - 100, net::shared_payload_bytes_min, mib + 3, 20 * mib}) {
    const auto bytes = some_bytes(size, size);
    for (const auto& reply : workers.call<&Worker::echo>(std::span(bytes)).wait()) {
      ASSERT_TRUE(reply) << reply.error().describe();
      EXPECT_TRUE(*reply == bytes) << size;
    }
  }
}

TEST_F(MeshTest, memory_of_large_payloads_is_used_again) {
  auto mesh = start({{"replica", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "");
  const auto bytes = some_bytes(4 * mib, 1);
  const std::size_t before = net::SharedPool::of_process().usage().blocks;
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(worker.call_one<&Worker::echo>(std::span(bytes)).wait());
  // One may still be on its way back when the next is made.
  EXPECT_LE(net::SharedPool::of_process().usage().blocks, before + 4);
}

TEST_F(MeshTest, a_rank_that_dies_with_large_payloads_costs_only_its_calls) {
  auto mesh = start({{"replica", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  const auto bytes = some_bytes(8 * mib, 1);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(workers.at(1).cast<&Worker::nap>(10000));
    std::vector<CallOne<std::vector<std::byte>>> stuck;
    for (int i = 0; i < 4; ++i)
      stuck.push_back(workers.at(1).call_one<&Worker::echo>(std::span(bytes)));
    std::jthread killer([&] {
      std::this_thread::sleep_for(20ms);
      ASSERT_TRUE(mesh.kill(1, SIGKILL));
    });
    const auto other = workers.at(0).call_one<&Worker::echo>(std::span(bytes)).wait();
    ASSERT_TRUE(other) << other.error().describe();
    EXPECT_TRUE(*other == bytes);
    for (auto& call : stuck) {
      const auto reply = call.wait();
      ASSERT_FALSE(reply);
      EXPECT_EQ(reply.error().kind, ErrorKind::disconnected);
    }
    ASSERT_TRUE(mesh.replace(1));
    const auto again = workers.at(1).call_one<&Worker::echo>(std::span(bytes)).wait();
    ASSERT_TRUE(again) << again.error().describe();
    EXPECT_TRUE(*again == bytes);
  }
}

}  // namespace
}  // namespace teson::actor
