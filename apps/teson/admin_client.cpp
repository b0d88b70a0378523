#include "apps/teson/admin_client.h"

#include <filesystem>
#include <span>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "teson/base/file.h"
#include "teson/job/run_folder.h"
#include "teson/net/address.h"
#include "teson/net/socket.h"

namespace teson::apps {
namespace {

constexpr Duration kConnectWait = std::chrono::seconds(2);
constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 30;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;

Result<void> check_run(const std::string& run) {
  const job::RunPaths paths{run};
  std::error_code code;
  if (std::filesystem::exists(paths.config(), code) && std::filesystem::exists(paths.lock(), code))
    return {};
  return fail(ErrorKind::invalid,
              fmt::format("there is no run at '{}'; give the folder of one, as `teson train` names "
                          "it at its start",
                          run));
}

Failure ended(const std::string& run) {
  return fail(ErrorKind::disconnected,
              fmt::format("the run at '{}' has ended; its logs: teson logs {}", run, run));
}

Result<net::Socket> connect(const std::string& run) {
  const Instant deadline = std::chrono::steady_clock::now() + kConnectWait;
  if (run.starts_with("unix:")) {
    TESON_TRY(const auto address, net::Address::parse(run));
    return net::connect(address, deadline);
  }
  TESON_TRY_VOID(check_run(run));
  const auto path = job::admin_socket(job::RunPaths{run});
  if (!path) return ended(run);
  TESON_TRY(const auto address, net::Address::unix_path(path->string()));
  auto socket = net::connect(address, deadline);
  if (!socket && socket.error().kind == ErrorKind::disconnected) return ended(run);
  return socket;
}

}  // namespace

void add_admin_run(CLI::App& command, std::string& run) {
  command
      .add_option("run", run,
                  "The run's folder, or the admin address of another program (unix:/PATH)")
      ->required();
}

Result<std::string> ask_admin(const std::string& run, std::string_view line, Duration wait) {
  TESON_TRY(net::Socket socket, connect(run));
  const Instant deadline = std::chrono::steady_clock::now() + wait;
  const std::string request = std::string(line) + "\n";
  TESON_TRY_VOID(socket.send_all(std::as_bytes(std::span(request)), deadline));
  std::string answer;
  std::string part(kReadBytes, '\0');
  while (!answer.ends_with('\n')) {
    TESON_TRY_VOID(net::wait_for(socket.fd(), POLLIN, deadline));
    const auto got = socket.receive_some(std::as_writable_bytes(std::span(part)));
    if (!got && got.error().kind == ErrorKind::disconnected) return ended(run);
    if (!got) return Failure(got.error());
    answer.append(part, 0, *got);
    if (answer.size() > kAnswerBytesMax) {
      return fail(ErrorKind::failed,
                  fmt::format("the answer has more than {} bytes", kAnswerBytesMax));
    }
  }
  answer.pop_back();
  if (!answer.starts_with("{\"error\"")) return answer;
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  return fail(ErrorKind::failed, json.is_object() && json["error"].is_string()
                                     ? json["error"].get<std::string>()
                                     : answer);
}

Result<bool> is_running(const std::string& run) {
  const auto socket = connect(run);
  if (socket) return true;
  if (socket.error().kind == ErrorKind::invalid) return Failure(socket.error());
  return socket.error().kind != ErrorKind::disconnected;
}

}  // namespace teson::apps
