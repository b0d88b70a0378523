// A quorum round of torchft's protocol over loopback gRPC: every member is a thread with a
// connection of its own, and a round ends when the last of them has its answer. One line a figure;
// --json for programs, --quick for a tenth of the rounds. --peer HOST:PORT: the same clients then
// also ask the torchft lighthouse that listens there (torchft_lighthouse --bind HOST:PORT
// --min_replicas 1 --join_timeout_ms 1000).
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "teson/torchft/lighthouse.grpc.pb.h"
#include "teson/torchft/server.h"

namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

bool json = false;
int divisor = 1;  ///< of all counts

void report(const std::string& name, double value, const char* unit, double peer) {
  if (!json) {
    std::printf("%-40s %10.1f %s", name.c_str(), value, unit);
    if (peer > 0) std::printf("   torchft %.1f", peer);
    std::printf("\n");
    return;
  }
  std::printf(R"({"name":"%s","value":%.3f,"unit":"%s")", name.c_str(), value, unit);
  if (peer > 0)
    std::printf(R"(,"peer":"torchft","peer_value":%.3f,"ratio":%.4f)", peer, value / peer);
  std::printf("}\n");
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_torchft: %s\n", why.c_str());
  std::exit(1);
}

class Member {
 public:
  Member(const std::string& address, std::string id) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = ::torchft::LighthouseService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    auto& member = *request_.mutable_requester();
    member.set_replica_id(std::move(id));
    member.set_address("http://host:12345");
    member.set_store_address("host:23456");
    member.set_world_size(1);
  }

  void ask() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    ::torchft::LighthouseQuorumResponse response;
    const auto status = stub_->Quorum(&context, request_, &response);
    if (!status.ok()) give_up("quorum: " + status.error_message());
  }

  void heartbeat() {
    grpc::ClientContext context;
    ::torchft::LighthouseHeartbeatRequest request;
    request.set_replica_id(request_.requester().replica_id());
    ::torchft::LighthouseHeartbeatResponse response;
    if (!stub_->Heartbeat(&context, request, &response).ok()) give_up("heartbeat failed");
  }

 private:
  std::unique_ptr<::torchft::LighthouseService::Stub> stub_;
  ::torchft::LighthouseQuorumRequest request_;
};

struct Figures {
  double p50_us = 0;
  double p99_us = 0;
};

/// All members are heard before the first one asks, so the first quorum has them all, whatever
/// min_replicas is.
Figures measure_rounds(const std::string& address, int members, int rounds) {
  constexpr int warm_up = 50;
  std::vector<double> round_us;
  auto began = SteadyClock::now();
  std::barrier gate(members, [&]() noexcept {
    const auto now = SteadyClock::now();
    round_us.push_back(Seconds(now - began).count() * 1e6);
    began = SteadyClock::now();
  });
  std::vector<std::jthread> threads;
  for (int i = 0; i < members; ++i)
    threads.emplace_back([&, i] {
      Member member(address, "of_" + std::to_string(members) + "_member_" + std::to_string(i));
      member.heartbeat();
      for (int round = 0; round <= warm_up + rounds; ++round) {
        gate.arrive_and_wait();
        member.ask();
      }
    });
  threads.clear();
  round_us.erase(round_us.begin(), round_us.begin() + warm_up + 1);
  std::sort(round_us.begin(), round_us.end());
  return {round_us[round_us.size() / 2], round_us[round_us.size() * 99 / 100]};
}

double measure_heartbeats(const std::string& address) {
  const int count = 5000 / divisor;
  Member member(address, "heart");
  for (int i = 0; i < 100; ++i)
    member.heartbeat();
  const auto began = SteadyClock::now();
  for (int i = 0; i < count; ++i)
    member.heartbeat();
  return count / Seconds(SteadyClock::now() - began).count();
}

struct All {
  Figures two, eight;
  double heartbeats_per_second = 0;
};

All measure(const std::string& address) {
  constexpr std::chrono::milliseconds until_forgotten{
      5500};  // the default heartbeat timeout and a little
  All all;
  all.two = measure_rounds(address, 2, 2000 / divisor);
  std::this_thread::sleep_for(until_forgotten);
  all.eight = measure_rounds(address, 8, 1000 / divisor);
  all.heartbeats_per_second = measure_heartbeats(address);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  std::string peer_address;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      json = true;
    else if (std::strcmp(argv[i], "--quick") == 0)
      divisor = 10;
    else if (std::strcmp(argv[i], "--peer") == 0 && i + 1 < argc)
      peer_address = argv[++i];
    else
      give_up(std::string("expected --json, --quick or --peer HOST:PORT, found ") + argv[i]);
  }
  teson::torchft::Options options;
  options.bind = "127.0.0.1:0";
  const auto server = teson::torchft::Server::start(options);
  if (!server) give_up(server.error().message);
  const auto ours = measure("127.0.0.1:" + std::to_string((*server)->port()));
  const auto peer = peer_address.empty() ? All{} : measure(peer_address);
  report("torchft.quorum_round.2_members.p50", ours.two.p50_us, "us", peer.two.p50_us);
  report("torchft.quorum_round.2_members.p99", ours.two.p99_us, "us", peer.two.p99_us);
  report("torchft.quorum_round.8_members.p50", ours.eight.p50_us, "us", peer.eight.p50_us);
  report("torchft.quorum_round.8_members.p99", ours.eight.p99_us, "us", peer.eight.p99_us);
  report("torchft.heartbeats.1_client", ours.heartbeats_per_second, "1/s",
         peer.heartbeats_per_second);
}
