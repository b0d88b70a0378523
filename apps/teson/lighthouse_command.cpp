#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "apps/teson/number_range.h"
#include "teson/actor/proc.h"
#include "teson/base/file.h"
#include "teson/base/log.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/quorum/lighthouse_server.h"
#include "teson/torchft/server.h"

namespace teson::apps {
namespace {

CLI::Validator count() {
  return number_from(1, 100'000);
}
CLI::Validator milliseconds() {
  return number_from(0, 86'400'000);
}

struct Arguments {
  torchft::Options torchft;
  std::string quorum_id_file;
  std::string job_bind;
  std::string job = "run";
  std::string record = "lighthouse.record";
  std::int32_t replicas = 1;
  int heartbeat_ms = 100;
};

Result<std::unique_ptr<quorum::LighthouseServer>> serve_job(net::Loop& loop,
                                                            const Arguments& arguments) {
  quorum::LighthouseOptions options;
  TESON_TRY(options.address, net::Address::parse(arguments.job_bind));
  options.job = arguments.job;
  if (const char* secret = std::getenv(kSecretVariable)) options.secret = secret;
  options.heartbeat = std::chrono::milliseconds(arguments.heartbeat_ms);
  options.replicas_expected = arguments.replicas;
  options.replicas_min = static_cast<std::int32_t>(arguments.torchft.min_replicas);
  options.record_path = arguments.record;
  options.on_failed = [](const Error& error) {
    log_error("lighthouse", "{}; ending, so that another can take over from the record",
              error.message);
    std::_Exit(kFailed);
  };
  return quorum::LighthouseServer::start(loop, std::move(options));
}

// torchft's clients take an id that is not new for an unchanged quorum, so ids must go on rising
// when a lighthouse is started again.
Result<void> keep_quorum_id(torchft::Options& options, const std::filesystem::path& path) {
  if (std::error_code code; std::filesystem::exists(path, code)) {
    TESON_TRY(const std::string text, read_file(path, 32));
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), options.quorum_id);
    if (error != std::errc() || options.quorum_id < 0 ||
        std::string_view(end, text.data() + text.size()) != "\n") {
      return fail(
          ErrorKind::invalid,
          fmt::format(
              "'{}' holds no quorum id; name another file with --quorum-id-file, or remove it",
              path.string()));
    }
  } else {
    TESON_TRY_VOID(write_file_atomic(path, "0\n"));
  }
  options.on_quorum = [path, mutex = std::make_shared<std::mutex>(), newest = options.quorum_id](
                          std::int64_t id, std::size_t) mutable {
    const std::lock_guard lock(*mutex);
    if (id <= newest) return;
    newest = id;
    if (const auto kept = write_file_atomic(path, fmt::format("{}\n", id)); !kept)
      log_error("lighthouse", "{}", kept.error().message);
  };
  return {};
}

void warn_if_open(const std::string& bind) {
  const auto address = net::Address::parse("tcp:" + bind);
  if (!address || address->is_loopback()) return;
  log_warning("lighthouse",
              "every machine that reaches {} can take part: torchft's protocol knows no "
              "authentication. Bind it where only the job's machines are",
              bind);
}

void wait_for_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  int signal = 0;
  sigwait(&signals, &signal);
}

// Under a controller: ends with it, or when it asks. Otherwise: until a signal.
Result<void> run_until_end(Arguments arguments) {
  std::unique_ptr<actor::Proc> proc;
  if (actor::Proc::is_child()) {
    TESON_TRY(proc, actor::Proc::attach());
  }
  net::Loop loop("teson-quorum");
  std::unique_ptr<quorum::LighthouseServer> job_server;
  std::unique_ptr<torchft::Server> torchft_server;
  if (!arguments.job_bind.empty()) {
    TESON_TRY(job_server, serve_job(loop, arguments));
    log_info("lighthouse", "job '{}' at {}", arguments.job, job_server->address().to_string());
  }
  if (!arguments.torchft.bind.empty()) {
    if (!arguments.quorum_id_file.empty())
      TESON_TRY_VOID(keep_quorum_id(arguments.torchft, arguments.quorum_id_file));
    warn_if_open(arguments.torchft.bind);
    TESON_TRY(torchft_server, torchft::Server::start(arguments.torchft));
    fmt::print("lighthouse for torchft listening on: {}\n", torchft_server->address());
    std::fflush(stdout);
  }
  if (proc) {
    proc->start();
    proc->wait();
  } else {
    wait_for_signal();
  }
  return {};
}

int run(const Arguments& arguments) {
  if (arguments.torchft.bind.empty() && arguments.job_bind.empty()) {
    return report({ErrorKind::invalid,
                   "a lighthouse needs --bind (for torchft clients), --job-bind (for teson's "
                   "workers), or both"});
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto ended = run_until_end(arguments);
  return ended ? kDone : report(ended.error());
}

}  // namespace

void add_lighthouse(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  arguments->torchft.bind.clear();
  auto& torchft = arguments->torchft;
  auto* command = app.add_subcommand(
      "lighthouse", "Form quorums: for unmodified torchft clients, and for teson's own workers");
  command->add_option("--bind", torchft.bind,
                      "host:port for torchft clients; no authentication, as torchft has none");
  command
      ->add_option("--min-replicas", torchft.min_replicas, "The least replicas that make a quorum")
      ->check(count())
      ->capture_default_str();
  command
      ->add_option("--join-timeout-ms", torchft.join_timeout_ms,
                   "How long a majority waits for members that only send heartbeats")
      ->check(milliseconds())
      ->capture_default_str();
  command
      ->add_option("--quorum-tick-ms", torchft.quorum_tick_ms,
                   "How often a pending quorum is looked at again")
      ->check(milliseconds())
      ->capture_default_str();
  command
      ->add_option("--heartbeat-timeout-ms", torchft.heartbeat_timeout_ms,
                   "Silence after which a member does not count")
      ->check(milliseconds())
      ->capture_default_str();
  command->add_option("--quorum-id-file", arguments->quorum_id_file,
                      "Keeps the newest quorum id for torchft clients, so that ids go on rising "
                      "when the lighthouse is started again with the same file");
  command->add_option("--job-bind", arguments->job_bind,
                      "unix:PATH or tcp:HOST:PORT for teson's workers; the environment's "
                      "TESON_JOB_SECRET is the run's secret, which all but loopback and Unix "
                      "sockets need");
  command->add_option("--job", arguments->job, "The job's name; workers of another are refused")
      ->capture_default_str();
  command->add_option("--replicas", arguments->replicas, "Replica groups of the job")
      ->check(count())
      ->capture_default_str();
  command->add_option("--record", arguments->record, "The durable record of epochs")
      ->capture_default_str();
  command
      ->add_option("--heartbeat-ms", arguments->heartbeat_ms,
                   "Heartbeat interval, from which all other bounds follow")
      ->check(number_from(1, 60'000))
      ->capture_default_str();
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
