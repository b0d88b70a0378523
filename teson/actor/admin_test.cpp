// The socket at which a System is looked at: what it answers, and what strangers and rubbish cost it.
#include "teson/actor/admin.h"

#include <filesystem>
#include <random>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/stat.h>

#include "teson/actor/testing/mesh_test_support.h"
#include "teson/net/socket.h"

namespace teson::actor {
namespace {

using namespace testing;
using Json = nlohmann::json;

class AdminTest : public MeshTest {
 protected:
  AdminTest() {
    const auto served = system.serve_admin(address());
    EXPECT_TRUE(served) << served.error().describe();
  }
  std::string path() const { return (folder_ / "admin").string(); }
  net::Address address() const { return *net::Address::unix_path(path()); }
  net::Socket connect() {
    auto socket = net::connect(address(), in(5s));
    if (!socket) throw std::runtime_error(socket.error().describe());
    return std::move(*socket);
  }
  /// What comes until the server closes, or until `lines` line ends.
  static std::string read(net::Socket& socket, int lines, Duration wait = 10s) {
    std::string text;
    const Instant deadline = in(wait);
    while (lines > 0 && net::wait_for(socket.fd(), POLLIN, deadline)) {
      std::byte bytes[4096];
      const auto got = socket.receive_some(bytes);
      if (!got) break;
      const std::string_view part(reinterpret_cast<const char*>(bytes), *got);
      lines -= static_cast<int>(std::count(part.begin(), part.end(), '\n'));
      text += part;
    }
    return text;
  }
  static void send(net::Socket& socket, std::string_view text) {
    (void)socket.send_all(std::as_bytes(std::span(text)), in(5s));
  }
  Json ask(std::string_view line) {
    auto socket = connect();
    send(socket, line);
    return Json::parse(read(socket, 1));
  }
  /// Whether the server has ended the connection.
  static bool is_closed(net::Socket& socket, Duration wait) {
    const Instant deadline = in(wait);
    while (net::wait_for(socket.fd(), POLLIN, deadline)) {
      std::byte bytes[4096];
      if (!socket.receive_some(bytes)) return true;
    }
    return false;
  }
};

TEST_F(AdminTest, tells_what_inspect_tells) {
  auto mesh = start({{"rank", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  (void)workers.call<&Worker::add>(1).wait();
  auto socket = connect();
  for (int round = 0; round < 3; ++round) {
    send(socket, "{\"what\": \"ps\"}\n");
    const auto json = Json::parse(read(socket, 1));
    EXPECT_EQ(json["pid"], ::getpid());
    ASSERT_EQ(json["meshes"].size(), 1U);
    EXPECT_EQ(json["meshes"][0]["name"], "workers");
    EXPECT_EQ(json["meshes"][0]["dimensions"], Json::parse(R"([{"name": "rank", "size": 2}])"));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto& proc = json["meshes"][0]["procs"][rank];
      EXPECT_EQ(proc["pid"], mesh.pid(rank));
      EXPECT_EQ(proc["state"], "running");
      EXPECT_TRUE(proc["exit"].is_null());
      EXPECT_EQ(proc["actors"][0]["class"], "Worker");
      EXPECT_EQ(proc["actors"][0]["name"], "worker");
    }
  }
}

TEST_F(AdminTest, takes_a_trace) {
  auto mesh = start({{"rank", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "");
  ASSERT_TRUE(mesh.wait_attached(in(10s)));
  auto socket = connect();
  send(socket, "{\"what\": \"trace\", \"seconds\": 0.3}\n");
  std::this_thread::sleep_for(100ms);
  (void)worker.call<&Worker::add>(1).wait();
  EXPECT_EQ(ask("{\"what\":\"ps\"}\n")["pid"], ::getpid()) << "meanwhile";
  const std::string text = read(socket, 1);
  EXPECT_TRUE(Json::parse(text)["traceEvents"].is_array());
  EXPECT_TRUE(contains(text, "Worker::add"));
}

TEST_F(AdminTest, its_socket_is_for_its_user_alone_and_goes_with_it) {
  struct stat info{};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(system.serve_admin(*net::Address::parse("tcp:127.0.0.1:0")).error().kind,
            ErrorKind::invalid);
  EXPECT_FALSE(std::filesystem::exists(path())) << "the earlier one was given up";
  ASSERT_TRUE(system.serve_admin(address()));
  std::filesystem::remove(path());
  ASSERT_TRUE(system.serve_admin(address())) << "a socket that was removed is made again";
  EXPECT_EQ(ask("{\"what\":\"ps\"}\n")["pid"], ::getpid());
}

TEST_F(AdminTest, answers_rubbish_with_one_line_and_closes) {
  for (const std::string_view rubbish :
       {"\n", "ps\n", "{}\n", "[]\n", "null\n", "{\"what\": 1}\n", "{\"what\": \"all\"}\n",
        "{\"what\": \"trace\"}\n", "{\"what\": \"trace\", \"seconds\": 1e9}\n",
        "{\"what\": \"trace\", \"seconds\": -1}\n", "{\"what\": \"ps\"\n",
        "{\"what\": \"ps\", \"x\": 1}\n", "GET / HTTP/1.1\r\n\r\n", "\xff\xfe\x00\n"}) {
    auto socket = connect();
    send(socket, rubbish);
    const std::string text = read(socket, 2);
    const auto json = Json::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_TRUE(json.contains("error")) << text;
    EXPECT_EQ(text.back(), '\n');
    EXPECT_TRUE(is_closed(socket, 5s));
  }
}

TEST_F(AdminTest, survives_random_lines_cut_lines_and_deep_ones) {
  std::mt19937 random(7);
  const std::string good = "{\"what\": \"ps\"}\n";
  for (int round = 0; round < 200; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i)
      text[random() % text.size()] = static_cast<char>(random());
    auto socket = connect();
    send(socket, std::string_view(text).substr(0, random() % (text.size() + 1)));
  }
  {
    auto deep = connect();
    send(deep, std::string(60'000, '[') + "\n");
    EXPECT_TRUE(contains(read(deep, 1), "error"));
  }
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(ask(good)["pid"], ::getpid());
}

TEST_F(AdminTest, a_line_without_end_is_refused) {
  auto socket = connect();
  send(socket, std::string(detail::admin_request_bytes_max + 5000, 'x'));
  EXPECT_TRUE(contains(read(socket, 1), "65536"));
  EXPECT_TRUE(is_closed(socket, 5s));
}

TEST_F(AdminTest, more_connections_than_its_bound_are_told_to_come_later) {
  std::vector<net::Socket> silent;
  for (std::size_t i = 0; i < detail::AdminServer::connections_max; ++i)
    silent.push_back(connect());
  // 92 more: each is told and dropped, and none of the first is.
  for (int i = 0; i < 92; ++i) {
    auto more = connect();
    EXPECT_TRUE(contains(read(more, 1), "try later"));
    EXPECT_TRUE(is_closed(more, 5s));
  }
  for (auto& socket : silent) {
    send(socket, "{\"what\":\"ps\"}\n");
    EXPECT_TRUE(contains(read(socket, 1), "\"pid\""));
  }
  // The silence of the first ends with them, and so makes room.
  for (auto& socket : silent)
    EXPECT_TRUE(is_closed(socket, 10s));
  EXPECT_EQ(ask("{\"what\":\"ps\"}\n")["pid"], ::getpid());
}

}  // namespace
}  // namespace teson::actor
