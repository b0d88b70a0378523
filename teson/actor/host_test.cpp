// Hosts whose agents have joined, processes with tickets, signs of life.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <sys/wait.h>

#include "teson/actor/handshake_options.h"
#include "teson/actor/host_agent.h"
#include "teson/actor/host_link.h"
#include "teson/actor/proc.h"
#include "teson/actor/proc_ticket.h"
#include "teson/actor/runtime.h"
#include "teson/actor/testing/mesh_test_support.h"
#include "teson/net/test_certificates.h"

namespace teson::actor {
namespace {

using namespace testing;

constexpr const char* secret = "a secret of the job";

class HostTest : public MeshTest {
 protected:
  HostTest() {
    const auto listening =
        system.listen({.address = *net::Address::parse("tcp:127.0.0.1:0"), .secret = secret});
    EXPECT_TRUE(listening) << listening.error().describe();
    address = *listening;
  }
  std::unique_ptr<Outsider> agent() {
    return std::make_unique<Outsider>(
        std::vector<std::string>{"host", address.to_string(), secret});
  }
  ProcOptions on_host() {
    auto result = options();
    result.program = TESON_ACTOR_TEST_CHILD;
    return result;
  }
  /// Supervision of which the test is told; what it tells outlives the mesh.
  Supervision noted() {
    return {.on_exit = [this](const ProcExit& exit) { exits.add(exit); },
            .on_restart = [this](const std::vector<std::size_t>& ranks) { restarts.add(ranks); }};
  }
  /// To an agent that is about to listen.
  static void connect(System& owner, const net::Address& at) {
    Result<void> joined = fail(ErrorKind::failed, "");
    for (int i = 0; i < 200 && !joined; ++i) {
      joined = owner.connect_host(at, secret, in(5s));
      if (!joined) std::this_thread::sleep_for(20ms);
    }
    ASSERT_TRUE(joined) << joined.error().describe();
  }
  static bool ends_soon(pid_t pid) {
    for (int i = 0; i < 2000 && runs(pid); ++i)
      std::this_thread::sleep_for(1ms);
    return !runs(pid);
  }

  net::Address address;
  Exits exits;
  Told<std::vector<std::size_t>> restarts;
};

TEST_F(HostTest, nobody_takes_over_a_connection_without_its_token) {
  auto mesh = system.expect_procs({{"replica", 1}}, options());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  const auto workers = mesh->spawn<Worker>("worker", "");
  const Outsider guest({"serve"}, mesh->ticket(0));
  ASSERT_EQ(workers.at(0).call_one<&Worker::add>(1).wait(), 1);
  net::Loop loop("test-io");
  for (const auto role : {detail::LinkRole::proc, detail::LinkRole::host}) {
    const detail::LinkHello hello{.wire = detail::wire_hash(),
                                  .role = role,
                                  .proc = workers.ref(0).proc,
                                  .host = "elsewhere",
                                  .token = std::string(48, '0'),
                                  .resumes = true};
    net::ChannelOptions impostor;
    impostor.handshake = detail::handshake_options(detail::link_job, secret, hello);
    impostor.resumable = true;
    auto channel = net::Channel::connect(loop, address, impostor, in(10s));
    ASSERT_TRUE(channel) << channel.error().describe();
    Told<Error> closed;
    (*channel)->start({.on_closed = [&](const Error& error) { closed.add(error); }});
    EXPECT_EQ(closed.wait(1)[0].kind, ErrorKind::disconnected);
  }
  EXPECT_EQ(workers.at(0).call_one<&Worker::add>(2).wait(), 3);
  mesh->stop();
}

TEST_F(HostTest, agents_and_the_processes_they_have_started_are_seen) {
  const auto one = agent();
  auto hosts = system.wait_hosts(1, in(10s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  auto mesh = hosts->spawn_procs({{"gpu", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  ASSERT_TRUE(mesh->wait_attached(in(10s)));
  const auto seen = system.inspect();
  ASSERT_EQ(seen.hosts.size(), 1U);
  EXPECT_EQ(seen.hosts[0].pid, one->pid());
  EXPECT_EQ(seen.hosts[0].gone + seen.hosts[0].no_answer, "");
  ASSERT_EQ(seen.hosts[0].actors.size(), 1U);
  EXPECT_EQ(seen.hosts[0].actors[0].class_name, "HostAgent");
  ASSERT_EQ(seen.meshes.size(), 1U);
  ASSERT_EQ(seen.meshes[0].procs.size(), 2U);
  EXPECT_EQ(seen.meshes[0].procs[1].pid, mesh->pid(1));
  EXPECT_EQ(seen.meshes[0].procs[1].host, seen.hosts[0].name);
}

TEST_F(HostTest, processes_start_on_hosts_that_have_joined_and_are_called_like_any) {
  const auto one = agent();
  const auto two = agent();
  const auto hosts = system.wait_hosts(2, in(20s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  EXPECT_EQ(hosts->size(), 2U);
  auto mesh = hosts->spawn_procs({{"replica", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  EXPECT_EQ(mesh->region().shape().describe(), (Shape{{"host", 2}, {"replica", 2}}).describe());
  const auto workers = mesh->spawn<Worker>("worker", "hello");
  const auto places = workers.call<&Worker::place>().wait();
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(places[rank]) << places[rank].error().describe();
    EXPECT_EQ(places[rank]->rank, rank);
    EXPECT_EQ(places[rank]->size, 4U);
    EXPECT_EQ(places[rank]->replica, rank % 2);
    EXPECT_EQ(places[rank]->pid, mesh->pid(rank));
  }
  EXPECT_EQ(workers.reduce<&Worker::add>(Sum{}, 2)->value, 8);
  const std::vector<std::byte> large(5 << 20, std::byte{3});
  EXPECT_EQ(workers.at(3).call_one<&Worker::echo>(std::span(large)).wait(), large);
  mesh->stop();
  for (const auto& place : places)
    EXPECT_TRUE(ends_soon(static_cast<pid_t>(place->pid)));
  // The agents are still there for the next job.
  auto next = hosts->host(1).spawn_procs({{"replica", 1}}, on_host());
  ASSERT_TRUE(next) << next.error().describe();
  EXPECT_EQ(next->spawn<Worker>("worker", "").at(0).call_one<&Worker::add>(1).wait(), 1);
}

TEST_F(HostTest, a_death_on_a_host_says_how_and_the_rank_comes_back) {
  const auto one = agent();
  const auto hosts = system.wait_hosts(1, in(20s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  auto mesh = hosts->spawn_procs({{"replica", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  mesh->supervise(noted());
  const auto workers = mesh->spawn<Worker>("worker", "");
  ASSERT_EQ(workers.at(1).call_one<&Worker::add>(1).wait(), 1);
  const auto crashed = workers.at(1).call_one<&Worker::crash>(Crash::segfault).wait();
  ASSERT_FALSE(crashed);
  for (const char* part : {"rank 1", "SIGSEGV", "about to crash"})
    EXPECT_TRUE(contains(crashed.error().message, part)) << crashed.error().message;
  EXPECT_EQ(exits.wait(1)[0].signal, SIGSEGV);
  restarts.wait(1);
  EXPECT_EQ(workers.at(1).call_one<&Worker::add>(7).wait(), 7);
  EXPECT_EQ(mesh->incarnation(1), 1U);
}

TEST_F(HostTest, a_lost_agent_is_told_once_and_its_processes_move_to_another_host) {
  auto one = agent();
  ASSERT_TRUE(system.wait_hosts(1, in(20s)));
  const auto two = agent();
  const auto hosts = system.wait_hosts(2, in(20s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  auto mesh = hosts->spawn_procs({{"replica", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  mesh->supervise(noted());
  const auto workers = mesh->spawn<Worker>("worker", "");
  for (const auto& reply : workers.call<&Worker::add>(1).wait())
    ASSERT_EQ(reply, 1);
  const std::vector<pid_t> pids{mesh->pid(0), mesh->pid(1)};
  auto pending = workers.at(0).call_one<&Worker::nap>(30'000);
  const auto killed = std::chrono::steady_clock::now();
  ::kill(one->pid(), SIGKILL);
  EXPECT_TRUE(contains(hosts_lost.wait(1)[0], "host"));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 3s) << "room for a busy machine";
  EXPECT_EQ(pending.wait().error().kind, ErrorKind::disconnected);
  exits.wait(2);
  restarts.wait(2);
  for (const pid_t pid : pids)
    EXPECT_TRUE(ends_soon(pid)) << "its processes end with it";
  for (const auto& reply : workers.call<&Worker::add>(5).wait())
    EXPECT_TRUE(reply) << reply.error().describe();
  EXPECT_EQ(hosts_lost.wait(1).size(), 1U);
  EXPECT_EQ(exits.wait(2).size(), 2U);
}

TEST_F(HostTest, ranks_come_back_with_an_agent_that_is_started_anew_on_their_machine) {
  auto first = agent();
  const auto hosts = system.wait_hosts(1, in(20s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  auto mesh = hosts->spawn_procs({{"replica", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  auto supervision = noted();
  supervision.restarts = {.restarts_max = 1000, .backoff_max = 100ms};
  mesh->supervise(supervision);
  const auto workers = mesh->spawn<Worker>("worker", "");
  for (const auto& reply : workers.call<&Worker::add>(1).wait())
    ASSERT_EQ(reply, 1);
  first.reset();
  exits.wait(2);
  const auto second = agent();
  restarts.wait(2);
  for (const auto& reply : workers.call<&Worker::add>(5).wait())
    EXPECT_EQ(reply, 5);
}

TEST_F(HostTest, what_an_owner_leaves_behind_its_agents_end) {
  const Outsider listening({"host-listen", "unix:" + (folder_ / "host").string(), secret});
  const auto at = *net::Address::unix_path((folder_ / "host").string());
  pid_t pid = 0;
  for (int owner = 0; owner < 2; ++owner) {
    System other;
    ASSERT_TRUE(
        other.listen({.address = *net::Address::parse("tcp:127.0.0.1:0"), .secret = secret}));
    connect(other, at);
    const auto hosts = other.wait_hosts(1, in(5s));
    ASSERT_TRUE(hosts);
    auto mesh = hosts->spawn_procs({{"replica", 1}}, on_host());
    ASSERT_TRUE(mesh) << mesh.error().describe();
    ASSERT_EQ(mesh->spawn<Worker>("worker", "").at(0).call_one<&Worker::add>(1).wait(), 1);
    pid = mesh->pid(0);
    EXPECT_TRUE(runs(pid));
  }
  EXPECT_TRUE(ends_soon(pid));
}

TEST_F(HostTest, an_agent_that_is_connected_to_again_has_left_its_first_connection) {
  const Outsider listening({"host-listen", "unix:" + (folder_ / "host").string(), secret});
  const auto at = *net::Address::unix_path((folder_ / "host").string());
  connect(system, at);
  const auto first = system.wait_hosts(1, in(5s));
  ASSERT_TRUE(first);
  auto mesh = first->spawn_procs({{"replica", 1}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  mesh->on_failure([&](const ProcExit& exit) { exits.add(exit); });
  const pid_t pid = mesh->pid(0);
  connect(system, at);
  EXPECT_TRUE(contains(hosts_lost.wait(1)[0], "joined again"));
  EXPECT_EQ(exits.wait(1)[0].pid, pid);
  EXPECT_TRUE(ends_soon(pid));
  const auto second = system.wait_hosts(1, in(5s));
  ASSERT_TRUE(second);
  auto next = second->spawn_procs({{"replica", 1}}, on_host());
  ASSERT_TRUE(next) << next.error().describe();
  EXPECT_EQ(next->spawn<Worker>("worker", "").at(0).call_one<&Worker::add>(1).wait(), 1);
  EXPECT_EQ(hosts_lost.wait(1).size(), 1U);
}

TEST_F(HostTest, the_wrong_secret_is_refused) {
  const Outsider stranger({"host", address.to_string(), "another secret"});
  const auto hosts = system.wait_hosts(1, in(500ms));
  ASSERT_FALSE(hosts);
  EXPECT_EQ(hosts.error().kind, ErrorKind::timed_out);
  EXPECT_TRUE(contains(hosts.error().message, "0 of 1 hosts have joined"));
}

TEST_F(HostTest, agents_and_processes_talk_tls_where_the_owner_wants_it) {
  net::test::Authority authority(folder_);
  const auto ours = authority.member("job");
  const auto tls = net::Tls::load(ours);
  ASSERT_TRUE(tls) << tls.error().describe();
  System encrypted;
  const auto at = encrypted.listen(
      {.address = *net::Address::parse("tcp:127.0.0.1:0"), .secret = secret, .tls = *tls});
  ASSERT_TRUE(at);
  const Outsider without({"host", at->to_string(), secret});
  EXPECT_FALSE(encrypted.wait_hosts(1, in(300ms))) << "it has no certificate";
  const std::pair<const char*, std::string> files[] = {{"TESON_TLS_CERT", ours.certificate},
                                                       {"TESON_TLS_KEY", ours.key},
                                                       {"TESON_TLS_CA", ours.authority}};
  for (const auto& [name, file] : files)
    ::setenv(name, file.c_str(), 1);
  const Outsider with({"host", at->to_string(), secret});
  for (const auto& [name, file] : files)
    ::unsetenv(name);
  const auto hosts = encrypted.wait_hosts(1, in(20s));
  ASSERT_TRUE(hosts) << hosts.error().describe();
  auto mesh = hosts->spawn_procs({{"replica", 2}}, on_host());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  const auto workers = mesh->spawn<Worker>("worker", "");
  const std::vector<std::byte> large(3 << 20, std::byte{3});
  for (const auto& reply : workers.call<&Worker::echo>(std::span(large)).wait()) {
    ASSERT_TRUE(reply) << reply.error().describe();
    EXPECT_TRUE(*reply == large);
  }
  mesh->on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ASSERT_TRUE(mesh->kill(1, SIGKILL));
  EXPECT_EQ(exits.wait(1)[0].signal, SIGKILL);
}

TEST_F(HostTest, a_process_that_others_start_attaches_by_its_ticket_once) {
  auto mesh = system.expect_procs({{"replica", 2}}, options());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  const auto workers = mesh->spawn<Worker>("worker", "early");
  const auto greeting = workers.at(0).call_one<&Worker::greeting>();
  const std::string ticket = mesh->ticket(0);
  Outsider zero({"serve"}, ticket);
  Outsider one({"serve"}, mesh->ticket(1));
  ASSERT_TRUE(mesh->wait_attached(in(20s)));
  const auto places = workers.call<&Worker::place>().wait();
  EXPECT_EQ(places[1]->rank, 1U);
  EXPECT_EQ(places[1]->pid, one.pid());
  EXPECT_EQ(mesh->pid(1), one.pid());
  Outsider again({"serve"}, ticket);
  EXPECT_EQ(WEXITSTATUS(again.wait()), 1) << "a ticket is good for one process";
  mesh->on_failure([&](const ProcExit& exit) { exits.add(exit); });
  ::kill(one.pid(), SIGKILL);
  const auto exit = exits.wait(1)[0];
  EXPECT_EQ(exit.rank, 1U);
  EXPECT_EQ(exit.pid, one.pid());
  EXPECT_FALSE(workers.at(1).call_one<&Worker::add>(1).wait());
  // Its place can be taken by another.
  ASSERT_TRUE(mesh->replace(1));
  EXPECT_NE(mesh->ticket(1), ticket);
  const Outsider next({"serve"}, mesh->ticket(1));
  EXPECT_EQ(workers.at(1).call_one<&Worker::add>(3).wait(), 3);
  mesh->stop();
  EXPECT_EQ(zero.wait(), 0) << "it leaves when asked";
}

TEST_F(HostTest, a_ticket_that_is_refused_fails_the_attach_and_says_why) {
  auto mesh = system.expect_procs({{"replica", 1}}, options());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  const auto attach = [](const std::string& ticket) {
    ::setenv("TESON_PROC", ticket.c_str(), 1);
    return Proc::attach();
  };
  const auto expect_refused = [&](const std::string& ticket) {
    const auto begin = std::chrono::steady_clock::now();
    const auto refused = attach(ticket);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
    EXPECT_TRUE(contains(refused.error().message, "the owner refuses a ticket"))
        << refused.error().message;
  };
  const std::string early = mesh->ticket(0);
  ASSERT_TRUE(mesh->replace(0));
  expect_refused(early);  // nobody is expected with it any more
  const std::string ticket = mesh->ticket(0);
  auto forged = *detail::read_ticket(ticket);
  forged.token = std::string(forged.token.size(), '0');
  expect_refused(detail::ticket_text(forged));
  {
    const auto good = attach(ticket);
    ASSERT_TRUE(good) << good.error().describe();
    ASSERT_TRUE(mesh->wait_attached(in(10s)));
    for (int i = 0; i < 20; ++i)
      expect_refused(ticket);  // it was used
    EXPECT_FALSE((*good)->stopping()) << "who has used it does not mind";
    mesh->on_failure([&](const ProcExit& exit) { exits.add(exit); });
  }
  exits.wait(1);
  expect_refused(ticket);
}

TEST_F(HostTest, a_call_to_who_has_not_attached_names_it) {
  auto mesh = system.expect_procs({{"replica", 2}}, options());
  ASSERT_TRUE(mesh) << mesh.error().describe();
  const auto workers = mesh->spawn<Worker>("worker", "");
  const auto reply = workers.within(50ms).at(1).call_one<&Worker::add>(1).wait();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::timed_out);
  for (const char* part : {"rank 1", "mesh 'workers'", "has not attached"})
    EXPECT_TRUE(contains(reply.error().message, part)) << reply.error().message;
}

TEST_F(HostTest, guests_need_a_door) {
  System closed;
  const auto mesh = closed.expect_procs({{"replica", 1}}, options());
  ASSERT_FALSE(mesh);
  EXPECT_TRUE(contains(mesh.error().message, "System::listen"));
}

TEST_F(HostTest, a_stopped_process_is_missed_within_three_heartbeats) {
  auto beating = options();
  beating.heartbeat = 200ms;
  auto mesh = start({{"replica", 2}}, beating);
  mesh.on_failure([&](const ProcExit& exit) { exits.add(exit); });
  const auto workers = mesh.spawn<Worker>("worker", "");
  for (const auto& reply : workers.call<&Worker::add>(1).wait())
    ASSERT_TRUE(reply);
  // A handler that takes long is no silence.
  ASSERT_TRUE(workers.at(0).call_one<&Worker::nap>(1000).wait());
  const auto stopped = std::chrono::steady_clock::now();
  ASSERT_TRUE(mesh.kill(1, SIGSTOP));
  const auto pending = workers.at(1).call_one<&Worker::nap>(30'000).wait();
  const auto exit = exits.wait(1)[0];
  EXPECT_LT(exit.instant - stopped, 3 * beating.heartbeat + 1s) << "room for a busy machine";
  EXPECT_EQ(exit.rank, 1U);
  EXPECT_TRUE(contains(exit.cause, "no sign of life")) << exit.cause;
  ASSERT_FALSE(pending);
  EXPECT_EQ(pending.error().kind, ErrorKind::disconnected);
}

TEST(HostLink, an_end_that_was_told_of_another_hosts_process_is_not_kept) {
  detail::Runtime runtime({});
  const auto link = std::make_shared<detail::HostLink>(runtime, 0, detail::LinkHello{});
  link->ended({.proc = 7, .code = 1, .last_lines = {"the last words of another"}});
  EXPECT_EQ(link->kept(), 0U);
  runtime.node.close();
}

TEST(ProcTicket, is_read_as_written_and_damage_is_refused) {
  const detail::ProcTicket ticket{.address = "tcp:127.0.0.1:4000",
                                  .secret = "s",
                                  .token = "t",
                                  .welcome = {.wire = 1, .proc = 7, .mesh = "workers"}};
  const std::string text = detail::ticket_text(ticket);
  const auto read = detail::read_ticket(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->address, ticket.address);
  EXPECT_EQ(read->token, ticket.token);
  EXPECT_EQ(read->welcome.proc, 7U);
  EXPECT_EQ(read->welcome.mesh, "workers");
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto cut = detail::read_ticket(text.substr(0, size));
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().kind, ErrorKind::invalid);
    EXPECT_FALSE(contains(cut.error().message, text.substr(0, 10))) << "it holds secrets";
  }
  EXPECT_FALSE(detail::read_ticket(text + "zz"));
}

}  // namespace
}  // namespace teson::actor
