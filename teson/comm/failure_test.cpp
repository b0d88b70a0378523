#include <chrono>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/clock.h"
#include "teson/comm/host_communicator.h"
#include "teson/comm/peer_stream.h"
#include "teson/comm/test_group.h"
#include "teson/net/frame.h"

namespace teson::comm {
namespace {

using namespace std::chrono_literals;
using test::TestGroup;
using ::testing::HasSubstr;

const Error fenced{ErrorKind::aborted, "epoch fenced"};
constexpr double soon_ms = 5000;  // far below any timeout; how soon it is, bench_comm measures
double ms_since(Instant start) {
  return to_ms(SystemClock().now() - start);
}

using Start = std::function<Work(Communicator&)>;

/// Operations of rank 0 that cannot end without rank 1.
std::vector<std::pair<std::string, Start>> blocking_operations() {
  struct Memory {
    std::vector<float> floats = std::vector<float>(3 << 20);
    std::vector<float> out = std::vector<float>(3 << 20);
    std::vector<std::uint64_t> digests = std::vector<std::uint64_t>(12);
  };
  const auto memory = std::make_shared<Memory>();
  const auto bytes = [memory] { return std::as_writable_bytes(std::span(memory->floats)); };
  const auto out_bytes = [memory] { return std::as_writable_bytes(std::span(memory->out)); };
  return {
      {"all_reduce", [memory](Communicator& c) { return c.all_reduce(memory->floats); }},
      {"reduce_scatter",
       [memory](Communicator& c) {
         return c.reduce_scatter(memory->floats,
                                 std::span(memory->out).first(memory->floats.size() / 2));
       }},
      {"all_gather",
       [=](Communicator& c) {
         return c.all_gather(bytes().first(bytes().size() / 2), out_bytes());
       }},
      {"all_to_all", [=](Communicator& c) { return c.all_to_all(bytes(), out_bytes()); }},
      {"broadcast_receive", [=](Communicator& c) { return c.broadcast(bytes(), 1); }},
      {"broadcast_send", [=](Communicator& c) { return c.broadcast(bytes(), 0); }},
      {"send", [=](Communicator& c) { return c.send(bytes(), 1, 3); }},
      {"recv", [=](Communicator& c) { return c.recv(bytes(), 1, 3); }},
      {"barrier", [](Communicator& c) { return c.barrier(); }},
      {"reduce_parts",
       [memory](Communicator& c) {
         ReduceParts parts;
         parts.elements = memory->floats.size();
         parts.tile_elements = 1 << 18;
         parts.lanes = 2;
         parts.held = {{{0, 0}}, {{0, 1}}};
         parts.own_parts = {memory->floats.data()};
         parts.out = memory->out.data();
         parts.tile_digests = memory->digests.data();
         return c.reduce_parts(std::move(parts));
       }},
  };
}

GroupOptions little_room(GroupOptions options) {
  options.early_message_bytes_max = 1 << 20;
  return options;
}

TEST(Abort, ends_every_blocked_operation_soon_and_the_next_epoch_works) {
  TestGroup group(2);
  std::uint64_t epoch = 0;
  for (const auto& [name, start] : blocking_operations()) {
    auto pair =
        group.connect(++epoch, [](GroupOptions& options) { options = little_room(options); });
    const Work work = start(*pair[0]);
    const Work queued = pair[0]->barrier();
    std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(work.done()) << name;
    const Instant aborted = SystemClock().now();
    std::jthread aborter([&pair = pair] { pair[0]->abort(fenced); });
    EXPECT_EQ(work.wait().error(), fenced) << name;
    EXPECT_LT(ms_since(aborted), soon_ms) << name;
    EXPECT_EQ(queued.wait().error(), fenced);
    EXPECT_EQ(start(*pair[0]).wait().error(), fenced) << name;
  }
  group.run(++epoch,
            [](Communicator& communicator) { EXPECT_TRUE(communicator.barrier().wait()); });
}

TEST(Abort, may_come_from_many_threads_and_the_first_error_stays) {
  TestGroup group(2);
  auto pair = group.connect(1);
  const Work work = pair[0]->barrier();
  pair[0]->abort(fenced);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] { pair[0]->abort({ErrorKind::failed, "later"}); });
  }
  EXPECT_EQ(work.wait().error(), fenced);
}

TEST(Abort, at_any_moment_of_a_reduction_leaves_no_wait_behind) {
  TestGroup group(3);
  CounterRandom random({3});
  const auto data = test::rough_floats(500000, {1});
  for (std::uint64_t epoch = 1; epoch <= 30; ++epoch) {
    std::vector<std::vector<float>> values(3, data);
    auto members = group.connect(epoch);
    std::vector<Work> works;
    for (std::size_t rank = 0; rank < 3; ++rank)
      works.push_back(members[rank]->all_reduce(values[rank]));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
    for (const auto& member : members)
      member->abort(fenced);
    for (const Work& work : works) {
      const auto result = work.wait();
      if (result) continue;
      EXPECT_THAT(result.error().kind,
                  ::testing::AnyOf(ErrorKind::aborted, ErrorKind::disconnected));
    }
  }
}

TEST(Leaving, fails_the_others_operations_without_being_taken_for_a_death) {
  TestGroup group(2);
  std::atomic<int> lost = 0;
  auto pair = group.connect(
      1, [&lost](GroupOptions& options) { options.on_peer_lost = [&lost](int) { ++lost; }; });
  const Work work = pair[0]->barrier();
  pair[1].reset();
  const auto result = work.wait();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(result.error().message, HasSubstr("it left the epoch"));
  EXPECT_EQ(lost, 0);
}

TEST(Leaving, frames_pushed_afterwards_are_neither_sent_nor_told_of) {
  struct Listener final : SentListener {
    int frames = 0;
    void sent(int) override { ++frames; }
  } listener;
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Fd peer(fds[0]);
  PeerStream stream(net::Socket(Fd{fds[1]}, net::Address::unix_path("/peer").value()), 1, 7);
  const auto payload = test::some_bytes(100, {1});
  const OutgoingFrame frame{.kind = FrameKind::exchange, .payload = payload, .listener = &listener};
  stream.push(frame);
  stream.leave(-1);
  stream.push(frame);
  stream.push_first(frame);
  ASSERT_TRUE(stream.send());
  EXPECT_FALSE(stream.wants_to_send());
  EXPECT_EQ(listener.frames, 0);
  net::FrameHeaderBytes bytes;
  ASSERT_EQ(::recv(peer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(bytes.size()));
  const auto header = net::decode_frame_header(bytes, 0);
  ASSERT_TRUE(header) << header.error().describe();
  EXPECT_EQ(header->kind, static_cast<std::uint16_t>(FrameKind::leave));
  EXPECT_EQ(::recv(peer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), -1);
}

TEST(Leaving, after_its_part_is_done_harms_nobody) {
  TestGroup group(3);
  std::atomic<int> lost = 0;
  for (std::uint64_t epoch = 1; epoch <= 50; ++epoch) {
    auto members = group.connect(
        epoch, [&lost](GroupOptions& options) { options.on_peer_lost = [&lost](int) { ++lost; }; });
    std::vector<std::jthread> threads;
    for (auto& member : members) {
      threads.emplace_back([&member] {
        std::vector<float> data(5000, 1.0f);
        EXPECT_TRUE(member->all_reduce(data).wait());
        EXPECT_EQ(data.back(), 3.0f);
        member.reset();
      });
    }
  }
  EXPECT_EQ(lost, 0);
}

TEST(Leaving, while_its_last_tile_waits_for_a_slow_rank_harms_nobody) {
  TestGroup group(3);
  auto members = group.connect(1);
  // One small tile more than an owner takes at once, so that the fast rank is done and gone while
  // it still waits.
  const std::size_t count = (4 << 18) + 100;
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&members, rank] {
      const std::vector<float> in(3 * count, 1.0f);
      std::vector<float> out(count);
      if (rank == 1) std::this_thread::sleep_for(100ms);
      const auto result = members[rank]->reduce_scatter(in, out).wait();
      ASSERT_TRUE(result) << result.error().describe();
      EXPECT_EQ(out.back(), 3.0f);
      members[rank].reset();
    });
  }
}

/// A rank in a process of its own, made by fork before this process has threads; it runs `body` and
/// exits 0.
class ChildRank {
 public:
  ChildRank(const net::Address& address, int rank, int size,
            const std::function<void(Communicator&)>& body) {
    int pipe_fds[2];
    EXPECT_EQ(::pipe(pipe_fds), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(address, rank, size, body, pipe_fds);
    }
    ::close(pipe_fds[0]);
    addresses_ = Fd(pipe_fds[1]);
  }
  ~ChildRank() {
    signal(SIGKILL);
    wait();
  }
  /// Tells the child where everybody is: it starts.
  void start(const std::vector<net::Address>& addresses) {
    std::string text;
    for (const net::Address& address : addresses)
      text += address.to_string() + "\n";
    EXPECT_EQ(::write(addresses_.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    addresses_.reset();
  }
  /// Only ever to a child that has not been waited for: kill(-1) would reach every process there
  /// is.
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  [[noreturn]] static void run(const net::Address& address, int rank, int size,
                               const std::function<void(Communicator&)>& body,
                               const int* pipe_fds) {
    ::close(pipe_fds[1]);
    HostTransportOptions options;
    options.address = address;
    options.job_id = "test";
    options.secret = "a secret";
    auto transport = HostTransport::listen(options);
    if (!transport) ::_exit(10);
    std::string text;
    char buffer[4096];
    for (ssize_t bytes = 0; (bytes = ::read(pipe_fds[0], buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<std::size_t>(bytes));
    GroupOptions group;
    group.epoch = 1;
    group.rank = rank;
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      group.addresses.push_back(net::Address::parse(text.substr(begin, end - begin)).value());
    }
    if (group.addresses.size() != static_cast<std::size_t>(size)) ::_exit(11);
    auto communicator = (*transport)->connect(group);
    if (!communicator) ::_exit(12);
    body(**communicator);
    communicator->reset();
    transport->reset();
    ::_exit(0);
  }

  pid_t pid_ = -1;
  Fd addresses_;
};

/// Two ranks here (0 and 1), rank 2 in a process of its own.
struct Trio {
  explicit Trio(const std::function<void(Communicator&)>& body)
      : child(folder.socket("child"), 2, 3, body) {
    for (const char* name : {"0", "1"}) {
      HostTransportOptions options;
      options.address = folder.socket(name);
      options.job_id = "test";
      options.secret = "a secret";
      transports.push_back(test::must(HostTransport::listen(options)));
      addresses.push_back(transports.back()->address());
    }
    addresses.push_back(folder.socket("child"));
    test::wait_for_listener(addresses.back());
    child.start(addresses);
  }
  void connect() {
    std::vector<std::jthread> threads;
    for (std::size_t rank : {0u, 1u}) {
      threads.emplace_back([this, rank] {
        GroupOptions group;
        group.epoch = 1;
        group.rank = static_cast<int>(rank);
        group.addresses = addresses;
        group.on_peer_lost = [this](int lost_rank) {
          const std::lock_guard lock(mutex);
          lost.push_back(lost_rank);
        };
        members[rank] = test::must(transports[rank]->connect(group));
      });
    }
  }

  test::TemporaryFolder folder;
  ChildRank child;
  std::vector<std::unique_ptr<HostTransport>> transports;
  std::vector<net::Address> addresses;
  std::mutex mutex;
  std::vector<int> lost;
  std::unique_ptr<Communicator> members[2];
};

TEST(Killed, survivors_of_a_reduction_learn_at_once_who_died) {
  for (int round = 0; round < 8; ++round) {
    Trio trio([](Communicator& communicator) {
      std::vector<float> data(1 << 20, 1.0f);
      while (communicator.all_reduce(data).wait()) {
      }
    });
    trio.connect();
    Instant killed;
    std::jthread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(7000 + 1777 * round));
      killed = SystemClock().now();
      trio.child.signal(SIGKILL);
    });
    std::vector<std::jthread> survivors;
    std::vector<Instant> ends(2);
    for (std::size_t rank : {0u, 1u}) {
      survivors.emplace_back([&, rank] {
        std::vector<float> data(1 << 20, 1.0f);
        Result<void> result;
        while ((result = trio.members[rank]->all_reduce(data).wait())) {
        }
        ends[rank] = SystemClock().now();
        EXPECT_EQ(result.error().kind, ErrorKind::disconnected);
        EXPECT_THAT(result.error().message, HasSubstr("rank 2"));
      });
    }
    survivors.clear();
    killer.join();
    for (const Instant end : ends)
      EXPECT_LT(to_ms(end - killed), soon_ms);
    // At least the first to see it gives evidence, each at most once; the survivors do not take
    // each other for dead.
    trio.members[0].reset();
    trio.members[1].reset();
    EXPECT_THAT(trio.lost, ::testing::AnyOf(std::vector<int>{2}, std::vector<int>{2, 2}));
  }
}

TEST(Killed, an_idle_group_gives_evidence_too) {
  Trio trio([](Communicator& communicator) {
    std::vector<std::byte> never(1);
    (void)communicator.recv(never, 0, 0).wait();
  });
  trio.connect();
  trio.child.signal(SIGKILL);
  const Instant start = SystemClock().now();
  while (ms_since(start) < 10000) {
    {
      const std::lock_guard lock(trio.mutex);
      if (trio.lost.size() == 2) break;
    }
    std::this_thread::sleep_for(1ms);
  }
  trio.members[0]->abort(fenced);
  trio.members[1]->abort(fenced);
  EXPECT_EQ(trio.members[0]->barrier().wait().error(), fenced);
  const std::lock_guard lock(trio.mutex);
  EXPECT_EQ(trio.lost, (std::vector<int>{2, 2}));
}

TEST(Stopped, a_peer_that_stands_still_blocks_until_the_abort) {
  Trio trio([](Communicator& communicator) {
    std::vector<float> data(1 << 20, 1.0f);
    while (communicator.all_reduce(data).wait()) {
    }
  });
  trio.connect();
  trio.child.signal(SIGSTOP);
  std::vector<std::jthread> survivors;
  for (std::size_t rank : {0u, 1u}) {
    survivors.emplace_back([&, rank] {
      std::vector<float> data(1 << 20, 1.0f);
      Result<void> result;
      while ((result = trio.members[rank]->all_reduce(data).wait())) {
      }
      // One that was aborted first may have left before the other's abort came.
      EXPECT_THAT(result.error().kind,
                  ::testing::AnyOf(ErrorKind::aborted, ErrorKind::disconnected));
    });
  }
  std::this_thread::sleep_for(50ms);
  const Instant aborted = SystemClock().now();
  for (const auto& member : trio.members)
    member->abort(fenced);
  survivors.clear();
  EXPECT_LT(ms_since(aborted), soon_ms);
  trio.members[0].reset();
  trio.members[1].reset();
  EXPECT_LT(ms_since(aborted), soon_ms);
  EXPECT_TRUE(trio.lost.empty());
  trio.child.signal(SIGCONT);
  EXPECT_EQ(trio.child.wait(), 0);
}

/// A communicator whose peer, rank 1, is played by the test byte by byte.
struct PlayedPeer {
  PlayedPeer() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const net::Address address = net::Address::unix_path("/played").value();
    peer = net::Socket(Fd(fds[1]), address);
    EngineOptions options;
    options.epoch = 7;
    options.sockets.resize(2);
    options.addresses = {address, address};
    options.sockets[1] = net::Socket(Fd(fds[0]), address);
    options.early_message_bytes_max = chunk_bytes + 128;  // one chunk and its list entry
    communicator = HostCommunicator::start(std::move(options)).value();
  }
  void send(std::span<const std::byte> bytes) {
    EXPECT_TRUE(peer.send_all(bytes, SystemClock().now() + 10s));
  }
  void send_frame(FrameKind kind, std::uint64_t sequence, std::span<const std::byte> payload,
                  std::uint64_t epoch = 7, std::uint64_t damage = 0, std::uint16_t flags = 0) {
    send(net::encode_frame_header({static_cast<std::uint16_t>(kind), flags, epoch, sequence,
                                   payload.size(), net::frame_checksum(payload) + damage}));
    send(payload);
  }

  net::Socket peer;
  std::unique_ptr<HostCommunicator> communicator;
};

TEST(Wire, frames_of_another_epoch_are_dropped) {
  PlayedPeer played;
  auto stale = test::some_bytes(200000, {1});
  auto fresh = test::some_bytes(100, {2});
  played.send_frame(FrameKind::exchange, 0, stale, 6);
  played.send_frame(FrameKind::exchange, 0, std::span(stale).first(100), 8);
  played.send_frame(FrameKind::exchange, 0, {}, 6);
  played.send_frame(FrameKind::exchange, 0, fresh);
  std::vector<std::byte> received(100);
  ASSERT_TRUE(played.communicator->broadcast(received, 1).wait());
  EXPECT_EQ(received, fresh);
}

TEST(Wire, a_dead_peer_behind_a_message_nobody_receives_is_noticed) {
  PlayedPeer played;
  std::vector<float> data(10);
  const Work work = played.communicator->all_reduce(data);
  // More than may come early, so that the stream stands still.
  const auto chunk = test::some_bytes(chunk_bytes, {1});
  played.send_frame(FrameKind::message, sequence_of(3, 0), chunk);
  played.send_frame(FrameKind::message, sequence_of(3, 1), std::span(chunk).first(10), 7, 0, 1);
  played.peer.close();
  const auto result = work.wait();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::disconnected);
}

TEST(Wire, a_damaged_payload_ends_the_operation_by_name) {
  PlayedPeer played;
  const auto payload = test::some_bytes(100, {2});
  played.send_frame(FrameKind::exchange, 0, payload, 7, 1);
  std::vector<std::byte> received(100);
  const auto result = played.communicator->broadcast(received, 1).wait();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
  EXPECT_THAT(result.error().message, HasSubstr("rank 1"));
  EXPECT_THAT(result.error().message, HasSubstr("payload checksum"));
}

TEST(Wire, a_stream_cut_anywhere_is_a_disconnection) {
  const auto payload = test::some_bytes(20, {2});
  for (std::size_t length = 0; length < net::frame_header_bytes + payload.size(); ++length) {
    PlayedPeer played;
    const auto header =
        net::encode_frame_header({16, 0, 7, 0, payload.size(), net::frame_checksum(payload)});
    std::vector<std::byte> stream(header.begin(), header.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
    played.send(std::span<const std::byte>(stream).first(length));
    played.peer.close();
    std::vector<std::byte> received(20);
    const auto result = played.communicator->broadcast(received, 1).wait();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::disconnected) << length;
    EXPECT_THAT(result.error().message, HasSubstr("rank 1 (unix:/played)"));
  }
}

TEST(Wire, random_bytes_and_wrong_frames_end_with_an_error_never_otherwise) {
  CounterRandom random({9});
  for (int round = 0; round < 300; ++round) {
    PlayedPeer played;
    std::vector<float> data(5000);
    const Work work =
        round % 2 == 0 ? played.communicator->all_reduce(data)
                       : played.communicator->recv(std::as_writable_bytes(std::span(data)), 1, 3);
    for (int frame = 0; frame < 4; ++frame) {
      const auto payload = test::some_bytes(
          random.below(2) == 0 ? random.below(100) : 4096 * random.below(4), {random.next()});
      net::FrameHeader header{static_cast<std::uint16_t>(random.below(24)),
                              static_cast<std::uint16_t>(random.below(3)),
                              7,
                              sequence_of(random.below(2) * 3, random.below(8)),
                              payload.size(),
                              net::frame_checksum(payload)};
      auto bytes = net::encode_frame_header(header);
      if (random.below(4) == 0) bytes[random.below(bytes.size())] ^= std::byte{1};
      (void)played.peer.send_all(bytes, SystemClock().now() + 1s);
      (void)played.peer.send_all(payload, SystemClock().now() + 1s);
    }
    played.peer.close();
    EXPECT_FALSE(work.wait());
  }
}

}  // namespace
}  // namespace teson::comm
