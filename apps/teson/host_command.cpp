#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/teson/commands.h"
#include "teson/actor/host_agent.h"
#include "teson/base/log.h"
#include "teson/net/address.h"

namespace teson::apps {
namespace {

struct Arguments {
  std::string join;
  std::string listen;
};

int run(const Arguments& arguments) {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&ending, number);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  actor::HostAgentOptions options;
  options.listen = !arguments.listen.empty();
  auto address = net::Address::parse(options.listen ? arguments.listen : arguments.join);
  if (!address) return report(address.error().in(options.listen ? "--listen" : "--join"));
  options.address = std::move(*address);
  if (const char* secret = std::getenv(kSecretVariable)) options.secret = secret;
  auto tls = net::Tls::from_environment();
  if (!tls) return report(tls.error());
  options.tls = std::move(*tls);
  options.say = [](const std::string& line) {
    fmt::print("teson host: {}\n", line);
    std::fflush(stdout);
  };
  const auto server = actor::HostServer::start(std::move(options));
  if (!server) return report(server.error());
  int number = 0;
  sigwait(&ending, &number);
  fmt::print("teson host: ending, and the processes of this host with it\n");
  return kDone;
}

}  // namespace

void add_host(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "host",
      "The agent of this machine: starts processes here for a program built on Tesón's actors, "
      "watches them, and ends them when that program is gone. The job's secret is taken from the "
      "environment variable TESON_JOB_SECRET; only loopback and Unix sockets do without one. With "
      "TESON_TLS_CERT, TESON_TLS_KEY and TESON_TLS_CA (PEM files: a certificate, its key, the "
      "authority that signs the job's certificates) connections over TCP are encrypted.");
  auto arguments = std::make_shared<Arguments>();
  auto* join = command->add_option("--join", arguments->join,
                                   "Connect to the owner at this address (tcp:HOST:PORT or "
                                   "unix:/PATH), again and again until it is there");
  auto* listen =
      command->add_option("--listen", arguments->listen,
                          "Wait at this address for owners to connect (System::connect_host)");
  join->excludes(listen);
  command->require_option(1);
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace teson::apps
