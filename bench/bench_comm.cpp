// Times the host communicator between processes of this machine, over Unix sockets.
//   bench_comm [--json] [--quick]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/clock.h"
#include "teson/comm/host_transport.h"

namespace {

using namespace teson;

constexpr std::size_t gradient_floats = 3 << 20;  // 12 MiB
constexpr std::size_t tile_floats = 1 << 18;

struct Options {
  bool json = false;
  bool quick = false;
};

double seconds_since(Instant start) {
  return to_seconds(SystemClock().now() - start);
}

void report(const Options& options, const std::string& name, double value, const char* unit) {
  if (options.json) {
    std::printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name.c_str(), value, unit);
  } else {
    std::printf("%-40s %12.4g %s\n", name.c_str(), value, unit);
  }
  std::fflush(stdout);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "bench_comm: %s\n", error.describe().c_str());
  std::exit(1);
}

/// One process a rank: ranks above 0 are forked and run the same body; rank 0's process returns.
void in_processes(int size, const std::function<void(comm::Communicator&)>& body) {
  char folder[] = "/tmp/teson_bench_XXXXXX";
  if (::mkdtemp(folder) == nullptr) give_up({ErrorKind::failed, "cannot make a folder under /tmp"});
  std::vector<net::Address> addresses;
  for (int rank = 0; rank < size; ++rank) {
    addresses.push_back(
        net::Address::unix_path(std::string(folder) + "/" + std::to_string(rank)).value());
  }
  const auto run = [&](int rank) {
    comm::HostTransportOptions options;
    options.address = addresses[static_cast<std::size_t>(rank)];
    options.job_id = "bench";
    auto transport = comm::HostTransport::listen(options);
    if (!transport) give_up(transport.error());
    for (const net::Address& address : addresses) {
      while (!std::filesystem::exists(address.path()))
        ::usleep(1000);
    }
    auto communicator = (*transport)->connect({.epoch = 1, .rank = rank, .addresses = addresses});
    if (!communicator) give_up(communicator.error());
    body(**communicator);
    if (auto last = (*communicator)->barrier().wait(); !last) give_up(last.error());
  };
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(rank);
      ::_exit(0);
    }
    children.push_back(child);
  }
  run(0);
  for (const pid_t child : children)
    ::waitpid(child, nullptr, 0);
  std::filesystem::remove_all(folder);
}

void bench_latency(const Options& options, int size) {
  const int rounds = options.quick ? 200 : 3000;
  in_processes(size, [&](comm::Communicator& communicator) {
    std::vector<std::byte> in(64);
    std::vector<std::byte> out(64 * static_cast<std::size_t>(size));
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      const Instant start = SystemClock().now();
      if (const auto result = communicator.all_gather(in, out).wait(); !result)
        give_up(result.error());
      times.push_back(seconds_since(start) * 1e6);
    }
    if (communicator.rank() == 0) {
      report(options, "comm.all_gather_64B.unix." + std::to_string(size) + "ranks.p50",
             median(times), "us");
    }
  });
}

void bench_reduce_parts(const Options& options, int size) {
  const int rounds = options.quick ? 3 : 30;
  in_processes(size, [&](comm::Communicator& communicator) {
    const std::vector<float> own(gradient_floats, 0.5f);
    std::vector<float> out(gradient_floats);
    std::vector<std::uint64_t> digests((gradient_floats + tile_floats - 1) / tile_floats);
    std::vector<double> times;
    for (int round = 0; round < rounds + 1; ++round) {
      comm::ReduceParts parts;
      parts.elements = gradient_floats;
      parts.tile_elements = tile_floats;
      parts.lanes = size;
      for (int rank = 0; rank < size; ++rank)
        parts.held.push_back({{0, rank}});
      parts.own_parts = {own.data()};
      parts.out = out.data();
      parts.tile_digests = digests.data();
      if (const auto ready = communicator.barrier().wait(); !ready) give_up(ready.error());
      const Instant start = SystemClock().now();
      if (const auto result = communicator.reduce_parts(std::move(parts)).wait(); !result)
        give_up(result.error());
      if (round > 0) times.push_back(seconds_since(start));
    }
    if (communicator.rank() != 0) return;
    const std::string name = "comm.reduce_parts_12MiB.unix." + std::to_string(size) + "ranks";
    report(options, name + ".p50", median(times) * 1e3, "ms");
    report(options, name, gradient_floats * sizeof(float) / median(times) / 1e9, "GB/s");
  });
}

void bench_memcpy(const Options& options) {
  const std::vector<float> source(gradient_floats, 0.5f);
  std::vector<float> target(gradient_floats);
  std::vector<double> times;
  for (int round = 0; round < (options.quick ? 5 : 50); ++round) {
    const Instant start = SystemClock().now();
    std::memcpy(target.data(), source.data(), gradient_floats * sizeof(float));
    times.push_back(seconds_since(start));
    if (target[gradient_floats / 2] != 0.5f) std::abort();
  }
  report(options, "memcpy_12MiB", gradient_floats * sizeof(float) / median(times) / 1e9, "GB/s");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--quick") {
      options.quick = true;
    } else {
      std::fprintf(stderr, "usage: bench_comm [--json] [--quick]\n");
      return 2;
    }
  }
  bench_memcpy(options);
  bench_latency(options, 2);
  bench_latency(options, 3);
  bench_reduce_parts(options, 2);
  bench_reduce_parts(options, 3);
  return 0;
}
