// Shapes of meshes: what actors see, and what handles can be made of others.

#include "teson/actor/testing/mesh_test_support.h"

namespace teson::actor {
namespace {

using namespace testing;

Seen seen(std::uint64_t rank, std::uint64_t size, std::string shape, std::uint64_t message_rank,
          std::uint64_t message_size, std::string message_shape) {
  return {rank, size, std::move(shape), message_rank, message_size, std::move(message_shape)};
}

TEST_F(MeshTest, an_actor_sees_the_mesh_it_was_spawned_in_and_the_slice_it_is_called_in) {
  auto mesh = start({{"host", 2}, {"gpu", 3}});
  auto workers = mesh.spawn<Worker>("worker", "");
  const auto all = workers.call<&Worker::see>().wait();
  for (std::size_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(all[rank], seen(rank, 6, "host=2, gpu=3", rank, 6, "host=2, gpu=3"));
  const auto host = workers.at("host", 1);
  ASSERT_TRUE(host);
  const auto row = host->call<&Worker::see>().wait();
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(row[rank], seen(3 + rank, 6, "host=2, gpu=3", rank, 3, "gpu=3"));
  EXPECT_EQ(host->at(2).call_one<&Worker::see>().wait()->message_shape, "no dimensions");
  EXPECT_EQ(system.actor(host->ref(2)).call<&Worker::see>().wait(),
            seen(5, 6, "host=2, gpu=3", 5, 6, "host=2, gpu=3"))
      << "a reference names one actor, no slice";
}

TEST_F(MeshTest, a_mesh_spawned_in_a_part_of_the_processes_counts_from_zero) {
  auto mesh = start({{"host", 2}, {"gpu", 3}});
  const auto lower = mesh.at("host", 1);
  ASSERT_TRUE(lower);
  auto workers = lower->spawn<Worker>("worker", "");
  EXPECT_EQ(workers.size(), 3U);
  EXPECT_EQ(workers.ranks(), (std::vector<std::size_t>{3, 4, 5}));
  const auto all = workers.call<&Worker::see>().wait();
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(all[rank], seen(rank, 3, "gpu=3", rank, 3, "gpu=3"));
  // What replaces one of its processes gets the actor again, the other processes never had it.
  ASSERT_TRUE(mesh.replace(4));
  ASSERT_TRUE(mesh.replace(0));
  EXPECT_EQ(workers.at(1).call_one<&Worker::see>().wait(),
            seen(1, 3, "gpu=3", 0, 1, "no dimensions"));
  const ActorRef<Worker> elsewhere{mesh.spawn<Worker>("all", "").ref(0).proc, workers.ref(0).actor};
  EXPECT_EQ(system.actor(elsewhere).call<&Worker::see>().wait().error().kind, ErrorKind::invalid);
}

TEST_F(MeshTest, handles_split_flatten_rename_and_refuse_as_regions_do) {
  auto mesh = start({{"rank", 6}});
  auto workers = mesh.spawn<Worker>("worker", "");
  const auto grid = workers.split("rank", {{"replica", 3}, {"shard", 2}});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->at("shard", 1)->ranks(), (std::vector<std::size_t>{1, 3, 5}));
  EXPECT_EQ(grid->at("shard", 1)->at(2).call_one<&Worker::see>().wait()->rank, 5U);
  EXPECT_EQ(grid->flatten("rank")->shape(), workers.shape());
  EXPECT_EQ(workers.rename("rank", "gpu")->shape(), (Shape{{"gpu", 6}}));
  EXPECT_EQ(workers.slice("rank", 1, 6, 2)->ranks(), (std::vector<std::size_t>{1, 3, 5}));
  const auto seen_there = grid->at("replica", 1)->call<&Worker::see>().wait();
  EXPECT_EQ(seen_there[1], seen(3, 6, "rank=6", 1, 2, "shard=2"));
  for (const auto& wrong :
       {workers.at("rank", 6), workers.at("colour", 0), workers.slice("rank", 4, 2),
        workers.slice("rank", 0, 6, 0), workers.split("rank", {{"a", 4}, {"b", 2}})}) {
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::invalid);
  }
}

}  // namespace
}  // namespace teson::actor
