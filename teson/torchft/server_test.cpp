#include "teson/torchft/server.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "teson/base/fd.h"
#include "teson/torchft/lighthouse.grpc.pb.h"

namespace teson::torchft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Reply = ::torchft::LighthouseQuorumResponse;

constexpr seconds plenty{10};

std::unique_ptr<Server> serve(Options options) {
  options.bind = "127.0.0.1:0";
  auto server = Server::start(std::move(options));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

std::shared_ptr<grpc::Channel> connect(const Server& server,
                                       grpc::ChannelArguments arguments = {}) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // a connection of its own, as another process has
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server.port()),
                                   grpc::InsecureChannelCredentials(), arguments);
}

::torchft::QuorumMember member(const std::string& id) {
  ::torchft::QuorumMember made;
  made.set_replica_id(id);
  made.set_address("http://" + id + ":1");
  made.set_store_address(id + ":2");
  made.set_step(3);
  made.set_world_size(4);
  made.set_data("{\"of\": \"" + id + "\"}");
  return made;
}

/// One member: a connection, and calls that wait on a thread of their own.
class Client {
 public:
  explicit Client(const Server& server)
      : stub_(::torchft::LighthouseService::NewStub(connect(server))) {}

  struct Outcome {
    grpc::Status status;
    Reply reply;
    std::vector<std::string> ids() const {
      std::vector<std::string> found;
      for (const auto& each : reply.quorum().participants())
        found.push_back(each.replica_id());
      return found;
    }
  };

  std::future<Outcome> ask(::torchft::QuorumMember requester, milliseconds limit = plenty) {
    context_ = std::make_shared<grpc::ClientContext>();
    context_->set_deadline(std::chrono::system_clock::now() + limit);
    return std::async(std::launch::async, [this, context = context_, requester] {
      ::torchft::LighthouseQuorumRequest request;
      *request.mutable_requester() = requester;
      Outcome outcome;
      outcome.status = stub_->Quorum(context.get(), request, &outcome.reply);
      return outcome;
    });
  }
  void cancel() { context_->TryCancel(); }

  grpc::Status heartbeat(const std::string& id) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + plenty);
    ::torchft::LighthouseHeartbeatRequest request;
    request.set_replica_id(id);
    ::torchft::LighthouseHeartbeatResponse response;
    return stub_->Heartbeat(&context, request, &response);
  }

 private:
  std::unique_ptr<::torchft::LighthouseService::Stub> stub_;
  std::shared_ptr<grpc::ClientContext> context_;
};

bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + plenty;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}
bool eventually_waiting(const Server& server, std::size_t calls) {
  return eventually([&] { return server.status().waiting == calls; });
}

TEST(Server, a_lone_member_has_its_quorum_at_once_and_gets_back_what_it_sent) {
  const auto server = serve({});
  Client client(*server);
  const auto before = std::chrono::system_clock::now();
  const auto outcome = client.ask(member("a")).get();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_LT(std::chrono::system_clock::now() - before, seconds(1));
  const auto& quorum = outcome.reply.quorum();
  EXPECT_EQ(quorum.quorum_id(), 1);
  ASSERT_EQ(quorum.participants_size(), 1);
  EXPECT_EQ(quorum.participants(0).SerializeAsString(), member("a").SerializeAsString());
  ASSERT_TRUE(quorum.has_created());
  const auto created = quorum.created().seconds() + quorum.created().nanos() * 1e-9;
  const auto asked = std::chrono::duration<double>(before.time_since_epoch()).count();
  EXPECT_NEAR(created, asked, 2);
}

TEST(Server, two_and_four_members_get_one_sorted_quorum_whose_id_stays) {
  for (const std::size_t count : {2, 4}) {
    Options options;
    options.min_replicas = count;
    const auto server = serve(options);
    std::vector<std::unique_ptr<Client>> clients;
    for (std::size_t i = 0; i < count; ++i)
      clients.push_back(std::make_unique<Client>(*server));
    for (int round = 0; round < 20; ++round) {
      std::vector<std::future<Client::Outcome>> calls;
      for (std::size_t i = count; i-- > 0;)
        calls.push_back(clients[i]->ask(member("member_" + std::to_string(i))));
      std::vector<std::string> replies;
      for (auto& call : calls) {
        const auto outcome = call.get();
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
        EXPECT_EQ(outcome.reply.quorum().quorum_id(), 1);
        const auto ids = outcome.ids();
        EXPECT_EQ(ids.size(), count);
        EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
        replies.push_back(outcome.reply.SerializeAsString());
      }
      for (const auto& reply : replies)
        EXPECT_EQ(reply, replies.front());
    }
  }
}

TEST(Server, a_heartbeating_straggler_is_waited_for_until_the_join_timeout) {
  Options options;
  options.join_timeout_ms = 300;
  options.quorum_tick_ms = 10;
  const auto server = serve(options);
  Client a(*server), b(*server), straggler(*server);
  ASSERT_TRUE(straggler.heartbeat("straggler").ok());
  const auto before = std::chrono::steady_clock::now();
  auto first = a.ask(member("a"));
  auto second = b.ask(member("b"));
  EXPECT_THAT(first.get().ids(), ElementsAre("a", "b"));
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(290));
  EXPECT_TRUE(second.get().status.ok());
}

TEST(Server, a_member_that_falls_silent_holds_the_others_for_its_heartbeat_timeout_at_most) {
  Options options;
  options.heartbeat_timeout_ms = 200;
  options.quorum_tick_ms =
      60'000;  // the timer wakes when the heartbeat grows too old, not at its tick
  const auto server = serve(options);
  Client alive(*server), ghost(*server);
  ASSERT_TRUE(ghost.heartbeat("ghost").ok());
  auto call = alive.ask(member("alive"));
  std::atomic<bool> done{false};
  std::thread beats([&] {
    while (!done) {
      EXPECT_TRUE(alive.heartbeat("alive").ok());
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  EXPECT_EQ(call.wait_for(plenty), std::future_status::ready);
  EXPECT_THAT(call.get().ids(), ElementsAre("alive"));
  done = true;
  beats.join();
}

TEST(Server, shrink_only_keeps_a_newcomer_waiting_for_the_next_quorum) {
  const auto server = serve({});
  Client a(*server), newcomer(*server);
  ASSERT_TRUE(a.ask(member("a")).get().status.ok());
  auto waits = newcomer.ask(member("new"));
  ASSERT_TRUE(eventually_waiting(*server, 1));
  auto shrinks = member("a");
  shrinks.set_shrink_only(true);
  EXPECT_THAT(a.ask(shrinks).get().ids(), ElementsAre("a"));
  EXPECT_EQ(server->status().waiting, 1u);
  EXPECT_THAT(a.ask(member("a")).get().ids(), ElementsAre("a", "new"));
  EXPECT_EQ(waits.get().reply.quorum().quorum_id(), 2);
}

TEST(Server, commit_failures_raise_the_id_and_another_step_does_not) {
  Options options;
  options.quorum_id = 10;
  std::atomic<std::int64_t> announced{0};
  options.on_quorum = [&](std::int64_t id, std::size_t members) {
    announced = id;
    EXPECT_EQ(members, 1u);
  };
  const auto server = serve(options);
  Client a(*server);
  EXPECT_EQ(a.ask(member("a")).get().reply.quorum().quorum_id(), 11);
  auto later = member("a");
  later.set_step(99);
  EXPECT_EQ(a.ask(later).get().reply.quorum().quorum_id(), 11);
  later.set_commit_failures(1);
  EXPECT_EQ(a.ask(later).get().reply.quorum().quorum_id(), 12);
  EXPECT_EQ(announced, 12);
}

TEST(Server, fields_of_newer_clients_are_kept_for_every_member) {
  Options options;
  options.min_replicas = 2;
  const auto server = serve(options);
  Client a(*server), b(*server);
  auto newer = member("a");
  auto* fields = newer.GetReflection()->MutableUnknownFields(&newer);
  fields->AddLengthDelimited(9, "{\"id\": 0}");
  fields->AddLengthDelimited(9, "");
  fields->AddVarint(1000, 77);
  auto first = a.ask(newer);
  const auto outcome = b.ask(member("b")).get();
  ASSERT_EQ(outcome.reply.quorum().participants_size(), 2);
  EXPECT_EQ(outcome.reply.quorum().participants(0).SerializeAsString(), newer.SerializeAsString());
  const auto& kept = outcome.reply.quorum().participants(0).GetReflection()->GetUnknownFields(
      outcome.reply.quorum().participants(0));
  ASSERT_EQ(kept.field_count(), 3);
  EXPECT_EQ(kept.field(0).length_delimited(), "{\"id\": 0}");
  EXPECT_EQ(kept.field(2).varint(), 77u);
  EXPECT_TRUE(first.get().status.ok());
}

TEST(Server, a_cancelled_call_takes_part_no_longer) {
  Options options;
  options.min_replicas = 2;
  const auto server = serve(options);
  Client a(*server), b(*server), c(*server);
  auto cancelled = a.ask(member("a"));
  ASSERT_TRUE(eventually_waiting(*server, 1));
  a.cancel();
  EXPECT_EQ(cancelled.get().status.error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(eventually_waiting(*server, 0));
  auto second = b.ask(member("b"));
  ASSERT_TRUE(eventually_waiting(*server, 1));
  auto third = c.ask(member("c"));
  ASSERT_TRUE(eventually_waiting(*server, 2));  // a still heartbeats, so b and c wait for it
  auto again = a.ask(member("a"));
  EXPECT_THAT(second.get().ids(), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(third.get().status.ok());
  EXPECT_TRUE(again.get().status.ok());
}

TEST(Server, a_call_past_its_deadline_ends_in_time_and_takes_part_no_longer) {
  Options options;
  options.min_replicas = 2;
  const auto server = serve(options);
  Client a(*server);
  const auto outcome = a.ask(member("a"), milliseconds(100)).get();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually_waiting(*server, 0));
}

/// Breaks every connection that this process, as a client, has to the port.
void break_connections_to(int port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    in_port_t found = 0;
    if (peer.ss_family == AF_INET) found = reinterpret_cast<const sockaddr_in&>(peer).sin_port;
    if (peer.ss_family == AF_INET6) found = reinterpret_cast<const sockaddr_in6&>(peer).sin6_port;
    if (ntohs(found) == port) ::shutdown(fd, SHUT_RDWR);
  }
}

TEST(Server, a_member_whose_connection_breaks_takes_part_no_longer) {
  Options options;
  options.min_replicas = 2;
  const auto server = serve(options);
  Client a(*server);
  auto call = a.ask(member("a"));
  ASSERT_TRUE(eventually_waiting(*server, 1));
  break_connections_to(server->port());
  EXPECT_TRUE(eventually_waiting(*server, 0));
  EXPECT_FALSE(call.get().status.ok());
}

TEST(Server, calls_that_end_at_any_moment_leave_nothing_behind) {
  constexpr int members = 6;
  Options options;
  options.min_replicas = 3;
  options.join_timeout_ms = 1;
  options.quorum_tick_ms = 1;
  const auto server = serve(options);
  std::atomic<int> answered{0}, unanswered{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < members; ++i)
    threads.emplace_back([&, i] {
      std::mt19937_64 random(static_cast<std::uint64_t>(i));
      Client client(*server);
      for (int round = 0; round < 150; ++round) {
        auto call = client.ask(member("member_" + std::to_string(i)), milliseconds(random() % 4));
        if (random() % 3 == 0) client.cancel();
        const auto outcome = call.get();
        const auto code = outcome.status.error_code();
        EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED ||
                    code == grpc::StatusCode::DEADLINE_EXCEEDED)
            << code << " " << outcome.status.error_message();
        ++(outcome.status.ok() ? answered : unanswered);
        if (outcome.status.ok()) {
          EXPECT_GE(outcome.reply.quorum().participants_size(), 3);
        }
      }
    });
  threads.clear();
  EXPECT_TRUE(eventually_waiting(*server, 0));
  EXPECT_GT(unanswered, 0);
}

/// An HTTP/2 frame without content but `payload`, on stream 0 (RFC 9113, section 4.1).
std::string frame(char type, const std::string& payload) {
  const std::string header{0, 0, static_cast<char>(payload.size()), type, 0, 0, 0, 0, 0};
  return header + payload;
}

std::string read_exactly(int fd, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t have = 0; have < size;) {
    const auto got = ::recv(fd, bytes.data() + have, size - have, 0);
    if (got <= 0) return {};
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

// torchft's clients ping each minute, calls or not. Here as bytes: gRPC's own client pings too
// seldom to tell within a test.
TEST(Server, pings_of_an_idle_client_are_welcome) {
  constexpr char settings = 4, ping = 6, go_away = 7;
  constexpr int count = 20;
  const auto server = serve({});
  const Fd client(::socket(AF_INET, SOCK_STREAM, 0));
  const timeval limit{plenty.count(), 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto send = [&](const std::string& bytes) {
    return ::send(client.get(), bytes.data(), bytes.size(), 0) ==
           static_cast<ssize_t>(bytes.size());
  };
  ASSERT_TRUE(send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, "")));
  ASSERT_TRUE(send(frame(ping, "12345678")));
  for (int answers = 0; answers < count;) {
    const auto header = read_exactly(client.get(), 9);
    ASSERT_EQ(header.size(), 9u) << "hung up after " << answers << " pings";
    ASSERT_NE(header[3], go_away) << "told to go away after " << answers << " pings";
    const auto size = static_cast<std::size_t>(static_cast<std::uint8_t>(header[2]));
    ASSERT_EQ(read_exactly(client.get(), size).size(), size);
    if (header[3] != ping) continue;
    ++answers;
    ASSERT_TRUE(send(frame(ping, "12345678")));
  }
}

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  return -1;
}

TEST(Server, a_thousand_waiting_calls_need_no_thread_each) {
  constexpr int count = 1000, members = 10;
  Options options;
  options.min_replicas = members;
  const auto server = serve(options);
  auto stub = ::torchft::LighthouseService::NewStub(connect(*server));
  grpc::CompletionQueue queue;
  struct Call {
    grpc::ClientContext context;
    Reply reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
  };
  std::vector<Call> calls(count);
  const auto ask = [&](int i) {
    ::torchft::LighthouseQuorumRequest request;
    request.mutable_requester()->set_replica_id(
        "member_" + std::to_string(i + 1 < count ? i % (members - 1) : members));
    calls[i].context.set_deadline(std::chrono::system_clock::now() + seconds(60));
    calls[i].reader = stub->AsyncQuorum(&calls[i].context, request, &queue);
    calls[i].reader->Finish(&calls[i].reply, &calls[i].status, nullptr);
  };
  for (int i = 0; i + 1 < count; ++i)
    ask(i);
  ASSERT_TRUE(eventually_waiting(*server, count - 1));
  EXPECT_LT(threads_of_this_process(), 100);
  ask(count - 1);
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < count; ++i)
    ASSERT_TRUE(queue.Next(&tag, &ok));
  for (const auto& call : calls) {
    ASSERT_TRUE(call.status.ok()) << call.status.error_message();
    ASSERT_EQ(call.reply.quorum().participants_size(), members);
  }
  queue.Shutdown();
}

grpc::Status send_raw(const Server& server, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(connect(server));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + plenty);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/torchft.LighthouseService/" + method, {}, &request, &response,
                 [&](grpc::Status status) { ended.set_value(std::move(status)); });
  return ended.get_future().get();
}

TEST(Server, refuses_bad_requests_and_goes_on) {
  const auto server = serve({});
  EXPECT_EQ(send_raw(*server, "Heartbeat", "\x0a\x01\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);  // no UTF-8
  const auto missing = send_raw(*server, "Quorum", "");
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(missing.error_message(), "missing requester");
  EXPECT_EQ(send_raw(*server, "Quorum", "\xff\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(send_raw(*server, "Heartbeat", "\xff\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(send_raw(*server, "Heartbeat", "").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(send_raw(*server, "Kill", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  Client client(*server);
  auto large = member("a");
  large.set_data(std::string((1 << 20) + 1, 'x'));
  const auto refused = client.ask(large).get();
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("expected at most 1048576 bytes"));
  large.set_data(std::string(5 << 20, 'x'));
  EXPECT_EQ(client.ask(large).get().status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(client.heartbeat("a").ok());
  EXPECT_TRUE(client.ask(member("a")).get().status.ok());
}

TEST(Server, shutdown_answers_who_waits_and_frees_the_port) {
  Options options;
  options.min_replicas = 2;
  auto server = serve(options);
  Client client(*server);
  auto waits = client.ask(member("a"));
  ASSERT_TRUE(eventually_waiting(*server, 1));
  const auto port = server->port();
  server->shutdown();
  server->shutdown();
  const auto outcome = waits.get();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(client.heartbeat("a").ok());
  server.reset();
  options.bind = "127.0.0.1:" + std::to_string(port);
  EXPECT_TRUE(Server::start(options));
}

TEST(Server, says_where_it_listens_and_does_not_share_a_port) {
  const auto server = serve({});
  const auto authority = "127.0.0.1:" + std::to_string(server->port());
  EXPECT_EQ(server->address(), "http://" + authority);
  Options options;
  options.bind = authority;
  const auto second = Server::start(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::failed);
  EXPECT_THAT(second.error().message, HasSubstr(authority));
  EXPECT_THAT(second.error().message, HasSubstr("Address already in use"));
  options.bind = "192.0.2.1:0";  // reserved for documentation: of no machine
  EXPECT_EQ(Server::start(options).error().kind, ErrorKind::failed);
  options.bind = "0.0.0.0:0";
  EXPECT_THAT((*Server::start(options))->address(), StartsWith("http://"));
}

TEST(Server, impossible_options_are_refused_by_name) {
  const auto refusal = [](const std::function<void(Options&)>& change) {
    Options options;
    options.bind = "127.0.0.1:0";
    change(options);
    const auto server = Server::start(options);
    return server ? "started" : server.error().message;
  };
  EXPECT_THAT(refusal([](Options& o) { o.bind = "nowhere"; }), StartsWith("bind address"));
  EXPECT_THAT(refusal([](Options& o) { o.min_replicas = 0; }), StartsWith("min_replicas"));
  EXPECT_THAT(refusal([](Options& o) { o.join_timeout_ms = -1; }), StartsWith("join_timeout_ms"));
  EXPECT_THAT(refusal([](Options& o) { o.quorum_tick_ms = 0; }), StartsWith("quorum_tick_ms"));
  EXPECT_THAT(refusal([](Options& o) { o.heartbeat_timeout_ms = INT64_MAX; }),
              StartsWith("heartbeat_timeout_ms"));
  EXPECT_THAT(refusal([](Options& o) { o.quorum_id = -1; }), StartsWith("quorum_id"));
}

}  // namespace
}  // namespace teson::torchft
