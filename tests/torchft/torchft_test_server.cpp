// The lighthouse alone, with the flags of `teson lighthouse`: torchft_test_server lighthouse --bind
// ADDR --min-replicas N [--join-timeout-ms N]
// [--quorum-tick-ms N] [--heartbeat-timeout-ms N]. Ends at SIGTERM or SIGINT.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <signal.h>

#include "teson/base/log.h"
#include "teson/torchft/server.h"

int main(int argc, char** argv) {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  teson::log_start("lighthouse", teson::LogLevel::info);

  teson::torchft::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "lighthouse" && i == 1) continue;
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--bind")
      options.bind = value;
    else if (flag == "--min-replicas")
      options.min_replicas = std::strtoull(value, nullptr, 10);
    else if (flag == "--join-timeout-ms")
      options.join_timeout_ms = std::atoll(value);
    else if (flag == "--quorum-tick-ms")
      options.quorum_tick_ms = std::atoll(value);
    else if (flag == "--heartbeat-timeout-ms")
      options.heartbeat_timeout_ms = std::atoll(value);
    else
      return std::fprintf(stderr, "unknown flag '%s'\n", argv[i]), 2;
  }
  const auto server = teson::torchft::Server::start(options);
  if (!server) return std::fprintf(stderr, "%s\n", server.error().message.c_str()), 1;
  std::printf("listening on: %s\n", (*server)->address().c_str());
  std::fflush(stdout);
  int received = 0;
  sigwait(&ending, &received);
  (*server)->shutdown();
}
