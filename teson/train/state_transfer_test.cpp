#include "teson/train/state_transfer.h"

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "teson/base/random.h"
#include "teson/comm/host_transport.h"

namespace teson::train {
namespace {

constexpr std::size_t kElements = 300001;  // no multiple of anything

struct Rank {
  std::vector<float> weights, moments;
  TrainingState state;
  Result<void> outcome;

  Rank(std::uint64_t seed, std::int64_t step) : weights(kElements), moments(kElements) {
    CounterRandom random({seed});
    for (auto& value : weights)
      value = static_cast<float>(random.uniform());
    for (auto& value : moments)
      value = static_cast<float>(random.uniform());
    state.step = step;
    state.chain = mix({seed, static_cast<std::uint64_t>(step)});
    state.tokens = step * 1024;
    state.updates = step - 1;
    state.arrays = {weights, moments};
  }
};

class StateTransfer : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Every rank in a thread of its own, over Unix sockets.
  void transfer(std::vector<std::unique_ptr<Rank>>& ranks, const std::vector<int>& donors,
                const std::vector<int>& learners) {
    std::vector<std::unique_ptr<comm::HostTransport>> transports;
    std::vector<net::Address> addresses;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      auto address = net::Address::parse(fmt::format("unix:{}/{}", folder_.string(), rank));
      ASSERT_TRUE(address) << address.error().message;
      auto transport =
          comm::HostTransport::listen({.address = *address, .job_id = "test", .secret = "secret"});
      ASSERT_TRUE(transport) << transport.error().message;
      addresses.push_back((*transport)->address());
      transports.push_back(std::move(*transport));
    }
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        comm::GroupOptions group;
        group.epoch = 1;
        group.rank = static_cast<int>(rank);
        group.addresses = addresses;
        auto communicator = transports[rank]->connect(std::move(group));
        ranks[rank]->outcome =
            communicator ? transfer_state(**communicator, donors, learners, ranks[rank]->state)
                         : Result<void>(Failure(communicator.error()));
        if (communicator) (void)(*communicator)->barrier().wait();
      });
    }
    for (auto& thread : threads)
      thread.join();
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("teson-{:x}", entropy64());
};

TEST_F(StateTransfer, learners_end_with_the_bits_and_numbers_of_the_donors) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const int seed : {5, 1, 5, 2})
    ranks.push_back(std::make_unique<Rank>(seed, seed == 5 ? 40 : 7));
  transfer(ranks, {0, 2}, {1, 3});
  for (const auto& rank : ranks) {
    ASSERT_TRUE(rank->outcome) << rank->outcome.error().message;
    EXPECT_EQ(rank->weights, ranks[0]->weights);
    EXPECT_EQ(rank->moments, ranks[0]->moments);
    EXPECT_EQ(rank->state.step, 40);
    EXPECT_EQ(rank->state.chain, ranks[0]->state.chain);
    EXPECT_EQ(rank->state.tokens, 40960);
    EXPECT_EQ(rank->state.updates, 39);
  }
}

TEST_F(StateTransfer, donors_of_different_histories_are_refused) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const int seed : {5, 6, 1})
    ranks.push_back(std::make_unique<Rank>(seed, 40));
  transfer(ranks, {0, 1}, {2});
  EXPECT_TRUE(ranks[0]->outcome);
  ASSERT_FALSE(ranks[2]->outcome);
  EXPECT_NE(ranks[2]->outcome.error().message.find("donors differ"), std::string::npos);
  EXPECT_EQ(ranks[2]->state.chain, mix({1, 40}))
      << "a refused learner must not believe that it is level";
}

}  // namespace
}  // namespace teson::train
