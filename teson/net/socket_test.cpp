#include "teson/net/socket.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

namespace teson::net {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Instant in(Duration time) {
  return SystemClock().now() + time;
}

class SocketTest : public ::testing::Test {
 protected:
  SocketTest() {
    char name[] = "/tmp/teson_net_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~SocketTest() override { std::filesystem::remove_all(folder_); }
  Address path(const std::string& name) const {
    return Address::unix_path((folder_ / name).string()).value();
  }

  std::filesystem::path folder_;
};

Socket accept_one(Listener& listener) {
  EXPECT_TRUE(wait_for(listener.fd(), POLLIN, in(10s)));
  auto socket = listener.accept();
  EXPECT_TRUE(socket && *socket);
  return std::move(**socket);
}

void expect_bytes_flow(Listener& listener) {
  auto client = connect(listener.address(), in(10s));
  ASSERT_TRUE(client) << client.error().describe();
  Socket server = accept_one(listener);
  std::vector<std::byte> sent(1 << 20);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::thread sender([&] { EXPECT_TRUE(client->send_all(sent, in(10s))); });
  std::vector<std::byte> received(sent.size());
  EXPECT_TRUE(server.receive_all(received, in(10s)));
  sender.join();
  EXPECT_EQ(received, sent);
  client->close();
  const auto end = server.receive_some(received);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::disconnected);
}

TEST_F(SocketTest, bytes_flow_over_unix_tcp_and_tcp6) {
  auto local = Listener::listen(path("a"));
  ASSERT_TRUE(local) << local.error().describe();
  expect_bytes_flow(*local);
  auto four = Listener::listen(Address::parse("tcp:127.0.0.1:0").value());
  ASSERT_TRUE(four) << four.error().describe();
  EXPECT_NE(four->address().port(), 0);
  expect_bytes_flow(*four);
  auto six = Listener::listen(Address::parse("tcp:[::1]:0").value());
  if (six) expect_bytes_flow(*six);  // Some containers have no IPv6.
  auto named = Listener::listen(Address::parse("tcp:localhost:0").value());
  ASSERT_TRUE(named) << named.error().describe();
  expect_bytes_flow(*named);
}

TEST_F(SocketTest, sockets_are_closed_on_exec_and_do_not_block) {
  auto listener = Listener::listen(path("a")).value();
  auto client = connect(listener.address(), in(10s)).value();
  Socket server = accept_one(listener);
  for (const int fd : {listener.fd(), client.fd(), server.fd()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
  EXPECT_FALSE(listener.accept().value().has_value());
  std::byte byte;
  EXPECT_EQ(client.receive_some({&byte, 1}).value(), 0u);
  EXPECT_EQ(client.receive_all({&byte, 1}, in(5ms)).error().kind, ErrorKind::timed_out);
}

TEST_F(SocketTest, the_file_of_a_unix_socket_is_private_and_goes_with_the_listener) {
  const Address address = path("a");
  {
    auto listener = Listener::listen(address).value();
    struct stat status{};
    ASSERT_EQ(::stat(address.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    Listener moved = std::move(listener);
    EXPECT_TRUE(std::filesystem::exists(address.path()));
  }
  EXPECT_FALSE(std::filesystem::exists(address.path()));
}

TEST_F(SocketTest, the_kernel_names_the_peer_of_a_unix_socket) {
  auto listener = Listener::listen(path("a")).value();
  auto client = connect(listener.address(), in(10s)).value();
  Socket server = accept_one(listener);
  EXPECT_EQ(peer_credentials(server).value().pid, ::getpid());
  EXPECT_EQ(peer_credentials(server).value().uid, ::geteuid());
}

TEST_F(SocketTest, a_dead_process_file_is_replaced_and_a_living_one_refused) {
  const Address address = path("a");
  const pid_t child = ::fork();
  if (child == 0) {
    // Leaves its socket file behind, as a killed process does.
    auto listener = Listener::listen(address);
    ::_exit(listener ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(address.path()));
  EXPECT_EQ(connect(address, in(10s)).error().kind, ErrorKind::disconnected);
  auto listener = Listener::listen(address);
  ASSERT_TRUE(listener) << listener.error().describe();
  expect_bytes_flow(*listener);
  const auto second = Listener::listen(address);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("in use"));
}

TEST_F(SocketTest, many_at_once_for_one_stale_file_give_one_listener) {
  const Address address = path("a");
  for (int round = 0; round < 20; ++round) {
    {
      // A bound socket that nobody listens on: its file stays.
      const Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      address.path().copy(name.sun_path, sizeof(name.sun_path) - 1);
      ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    }
    std::vector<Result<Listener>> listeners;
    for (int i = 0; i < 4; ++i)
      listeners.push_back(fail(ErrorKind::failed, ""));
    {
      std::vector<std::jthread> threads;
      for (auto& listener : listeners)
        threads.emplace_back([&] { listener = Listener::listen(address); });
    }
    EXPECT_EQ(std::count_if(listeners.begin(), listeners.end(),
                            [](const auto& l) { return l.has_value(); }),
              1);
    EXPECT_TRUE(connect(address, in(10s)));
  }
}

TEST_F(SocketTest, a_file_that_is_no_socket_is_left_alone) {
  std::ofstream(folder_ / "a") << "precious";
  const auto listener = Listener::listen(path("a"));
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message, HasSubstr("not a socket"));
  EXPECT_EQ(std::filesystem::file_size(folder_ / "a"), 8u);
}

TEST_F(SocketTest, a_port_in_use_is_refused) {
  auto listener = Listener::listen(Address::parse("tcp:127.0.0.1:0").value()).value();
  const auto second = Listener::listen(listener.address());
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("in use"));
}

TEST_F(SocketTest, listening_to_the_world_needs_a_secret) {
  const Address everywhere = Address::parse("tcp:0.0.0.0:0").value();
  const auto refused = Listener::listen(everywhere);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr("secret"));
  EXPECT_TRUE(Listener::listen(everywhere, {.has_secret = true}));
}

TEST_F(SocketTest, connecting_to_nobody_is_a_disconnection_at_once) {
  EXPECT_EQ(connect(path("nobody"), in(10s)).error().kind, ErrorKind::disconnected);
  Address address;
  {
    address = Listener::listen(Address::parse("tcp:127.0.0.1:0").value()).value().address();
  }
  EXPECT_EQ(connect(address, in(10s)).error().kind, ErrorKind::disconnected);
  EXPECT_EQ(connect(Address::parse("tcp:127.0.0.1:0").value(), in(10s)).error().kind,
            ErrorKind::invalid);
  EXPECT_FALSE(connect(Address{}, in(10s)));
  EXPECT_THAT(
      connect(Address::parse("tcp:no-such-host.invalid:1").value(), in(10s)).error().message,
      HasSubstr("looking up"));
}

TEST_F(SocketTest, a_full_queue_is_waited_for_until_the_deadline_or_a_cancel) {
  auto listener = Listener::listen(path("a"), {.backlog = 0}).value();
  std::vector<Socket> queued;
  while (true) {
    auto socket = connect(listener.address(), in(20ms));
    if (!socket) {
      EXPECT_EQ(socket.error().kind, ErrorKind::timed_out);
      break;
    }
    queued.push_back(std::move(*socket));
    ASSERT_LT(queued.size(), 10u);
  }
  const Fd cancel(::eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(connect(listener.address(), in(10s), cancel.get()).error().kind, ErrorKind::aborted);
}

TEST_F(SocketTest, waits_are_cancelled_from_another_thread) {
  auto listener = Listener::listen(path("a")).value();
  auto client = connect(listener.address(), in(10s)).value();
  const Fd cancel(::eventfd(0, EFD_CLOEXEC));
  std::jthread canceller([&] {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(cancel.get(), &one, sizeof(one)), 8);
  });
  std::byte byte;
  EXPECT_EQ(client.receive_all({&byte, 1}, in(60s), cancel.get()).error().kind, ErrorKind::aborted);
}

TEST_F(SocketTest, descriptors_running_out_is_an_overload_and_passes) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined behaviour sanitizer needs descriptors itself";
#endif
  auto listener = Listener::listen(path("a")).value();
  auto client = connect(listener.address(), in(10s)).value();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd next(::dup(0));
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const auto refused = listener.accept();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::overloaded);
  EXPECT_TRUE(listener.accept().value().has_value());
}

TEST_F(SocketTest, sending_to_a_closed_peer_is_a_disconnection_not_a_signal) {
  auto listener = Listener::listen(path("a")).value();
  auto client = connect(listener.address(), in(10s)).value();
  accept_one(listener).close();
  const std::vector<std::byte> data(100);
  EXPECT_EQ(client.send_all(data, in(10s)).error().kind, ErrorKind::disconnected);
}

}  // namespace
}  // namespace teson::net
