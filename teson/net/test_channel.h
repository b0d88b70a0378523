#pragma once

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "teson/base/clock.h"
#include "teson/net/channel.h"

namespace teson::net::test {

inline Instant in(Duration delay) {
  return std::chrono::steady_clock::now() + delay;
}

/// What one channel has heard.
class Heard {
 public:
  ChannelCallbacks callbacks() {
    return {
        .on_open = [this] { change([&] { open_ = true; }); },
        .on_message =
            [this](Message message) { change([&] { messages_.push_back(std::move(message)); }); },
        .on_closed = [this](const Error& error) { change([&] { closed_.push_back(error); }); }};
  }
  bool wait(const std::function<bool(Heard&)>& until, Duration limit = std::chrono::seconds(10)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return until(*this); });
  }
  bool wait_messages(std::size_t count) {
    return wait([&](Heard& heard) { return heard.messages_.size() >= count; });
  }
  bool wait_closed() {
    return wait([](Heard& heard) { return !heard.closed_.empty(); });
  }

  bool open_ = false;
  std::vector<Message> messages_;
  std::vector<Error> closed_;

 private:
  template <typename F>
  void change(F f) {
    std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

inline ChannelOptions options(std::string secret = "s") {
  return {.handshake = {.job_id = "job",
                        .purpose = "test",
                        .secret = std::move(secret),
                        .body = {std::byte{1}, std::byte{2}}}};
}

/// A folder under /tmp that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/teson-channel-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  Address socket() const { return *Address::unix_path(path_ + "/s"); }

 private:
  std::string path_;
};

/// Two channels over a socketpair.
struct Pair {
  explicit Pair(Loop& loop, ChannelOptions left_options = options(),
                ChannelOptions right_options = options()) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    left = Channel::adopt(loop, Fd(fds[0]), HandshakeRole::initiator, std::move(left_options));
    right = Channel::adopt(loop, Fd(fds[1]), HandshakeRole::acceptor, std::move(right_options));
  }
  void start() {
    left->start(left_heard.callbacks());
    right->start(right_heard.callbacks());
  }
  Heard left_heard;
  Heard right_heard;
  std::unique_ptr<Channel> left;
  std::unique_ptr<Channel> right;
};

}  // namespace teson::net::test
