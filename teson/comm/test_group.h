#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "teson/base/clock.h"
#include "teson/base/random.h"
#include "teson/comm/host_transport.h"
#include "teson/net/socket.h"

namespace teson::comm::test {

/// A folder under /tmp that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/teson_comm_XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  net::Address socket(const std::string& name) const {
    return net::Address::unix_path((path_ / name).string()).value();
  }

 private:
  std::filesystem::path path_;
};

/// What a test cannot go on without: an error ends the test program, and says what it was.
template <typename T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "cannot go on: %s\n", result.error().describe().c_str());
  std::abort();
}

/// Returns when somebody listens at `address`. The file of a Unix socket is there a moment earlier.
inline void wait_for_listener(const net::Address& address) {
  const Instant give_up = SystemClock().now() + std::chrono::seconds(30);
  for (;;) {
    auto probe = net::connect(address, give_up);
    if (probe) return;
    if (SystemClock().now() >= give_up) must(std::move(probe));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// `size` transports of this process, over Unix sockets or loopback TCP, that can become a group.
class TestGroup {
 public:
  explicit TestGroup(int size, bool tcp = false) : size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      HostTransportOptions options;
      options.address = tcp ? net::Address::parse("tcp:127.0.0.1:0").value()
                            : folder_.socket(std::to_string(rank));
      options.job_id = "test";
      options.secret = "a secret";
      options.instance = 100 + static_cast<std::uint64_t>(rank);
      transports.push_back(must(HostTransport::listen(options)));
      addresses.push_back(transports.back()->address());
    }
  }

  GroupOptions options(std::uint64_t epoch, int rank) const {
    GroupOptions group;
    group.epoch = epoch;
    group.rank = rank;
    group.addresses = addresses;
    return group;
  }

  /// Connects all ranks, each on a thread of its own, and runs `body` there.
  void run(std::uint64_t epoch, const std::function<void(Communicator&)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, epoch, rank, &body] {
        body(*must(transports[static_cast<std::size_t>(rank)]->connect(options(epoch, rank))));
      });
    }
  }

  /// Connected communicators of all ranks.
  std::vector<std::unique_ptr<Communicator>> connect(
      std::uint64_t epoch, const std::function<void(GroupOptions&)>& change = {}) {
    std::vector<std::unique_ptr<Communicator>> group(static_cast<std::size_t>(size_));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, epoch, rank, &group, &change] {
        auto group_options = options(epoch, rank);
        if (change) change(group_options);
        group[static_cast<std::size_t>(rank)] =
            must(transports[static_cast<std::size_t>(rank)]->connect(group_options));
      });
    }
    return group;
  }

  std::vector<std::unique_ptr<HostTransport>> transports;
  std::vector<net::Address> addresses;

 private:
  TemporaryFolder folder_;
  int size_;
};

/// Floats whose sums depend on the order: many magnitudes, both signs, some negative zeros. A pure
/// function of the keys.
inline std::vector<float> rough_floats(std::size_t count,
                                       std::initializer_list<std::uint64_t> keys) {
  CounterRandom random(keys);
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t bits = random.next();
    const auto exponent = static_cast<int>(bits >> 32 & 15);
    value = bits % 61 == 0
                ? -0.0f
                : std::ldexp(static_cast<float>(static_cast<std::int32_t>(bits)), -exponent);
  }
  return values;
}

inline std::vector<std::byte> some_bytes(std::size_t count,
                                         std::initializer_list<std::uint64_t> keys) {
  CounterRandom random(keys);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace teson::comm::test
