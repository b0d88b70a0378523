#pragma once

// What the tests of whole meshes share: real processes, started from the test's child program.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/actor/system.h"
#include "teson/actor/testing/interfaces.h"

namespace teson::actor::testing {

using namespace std::chrono_literals;

inline Instant in(Duration delay) {
  return std::chrono::steady_clock::now() + delay;
}
inline bool is_alive(pid_t pid) {
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}
/// Whoever inherits an orphan may reap it late: a zombie runs no more.
inline bool runs(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return (stat >> number >> name >> state) && state != "Z" && state != "X";
}
inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// What is told to a handler, for those who wait for it. Threads: any.
template <typename T>
class Told {
 public:
  void add(const T& one) {
    std::lock_guard lock(mutex_);
    all_.push_back(one);
    changed_.notify_all();
  }
  /// All so far, once there are `count`; fails the test after 10 s.
  std::vector<T> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 10s, [&] { return all_.size() >= count; }));
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> all_;
};
using Exits = Told<ProcExit>;

/// A process that this test, not the library, has started.
class Outsider {
 public:
  Outsider(std::vector<std::string> arguments, const std::string& variable = {}) {
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry)
      environment.emplace_back(*entry);
    if (!variable.empty()) environment.push_back("TESON_PROC=" + variable);
    arguments.insert(arguments.begin(), TESON_ACTOR_TEST_CHILD);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (auto& text : texts)
        result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    EXPECT_EQ(::posix_spawn(&pid_, TESON_ACTOR_TEST_CHILD, nullptr, nullptr,
                            pointers(arguments).data(), pointers(environment).data()),
              0);
  }
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;
  ~Outsider() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = 0;
};

/// A system, a folder for logs, and options that start the test's child program.
class MeshTest : public ::testing::Test {
 protected:
  explicit MeshTest(SystemOptions system_options = {}) : system(noting(std::move(system_options))) {
    char name[] = "/tmp/teson-actor-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~MeshTest() override { std::filesystem::remove_all(folder_); }

  ProcOptions options(std::string mode = "serve") {
    return {
        .name = "workers",
        .program = TESON_ACTOR_TEST_CHILD,
        .arguments = [mode](const ProcPlace&) { return std::vector<std::string>{mode}; },
        .log_file = [this](const ProcPlace& place) { return log_of(place.rank); },
        .stop_grace = 5s,
    };
  }
  ProcMesh start(const Shape& shape, ProcOptions with) {
    auto mesh = this_host(system).spawn_procs(shape, std::move(with));
    if (!mesh) throw std::runtime_error(mesh.error().describe());
    return std::move(*mesh);
  }
  ProcMesh start(const Shape& shape) { return start(shape, options()); }
  std::filesystem::path log_of(std::size_t rank) const {
    return folder_ / ("rank" + std::to_string(rank) + ".log");
  }

  SystemOptions noting(SystemOptions system_options) {
    system_options.on_unhandled = [this](const std::string& chain) { unhandled.add(chain); };
    system_options.on_undelivered = [this](const UndeliveredCast& one) { returned.add(one); };
    system_options.on_host_lost = [this](const std::string& why) { hosts_lost.add(why); };
    return system_options;
  }

  std::filesystem::path folder_;
  // What the system tells, before it: it tells to its end.
  Told<std::string> unhandled;
  Told<ActorFailure> failures;  ///< where a test asks for them
  Told<UndeliveredCast> returned;
  Told<std::string> hosts_lost;
  System system;
};

class ListenerActor final : public Listener {
 public:
  ListenerActor(std::vector<std::vector<int>>& heard, std::atomic<int>& count)
      : heard_(heard), count_(count) {}
  void heard(std::uint64_t rank, int value) override {
    heard_[rank].push_back(value);
    ++count_;
  }
  int twice(int value) override { return 2 * value; }

 private:
  std::vector<std::vector<int>>& heard_;
  std::atomic<int>& count_;
};

}  // namespace teson::actor::testing
