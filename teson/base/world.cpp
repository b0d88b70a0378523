#include "teson/base/world.h"

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

namespace teson {

thread_local constinit World* World::current_ = nullptr;

pid_t own_pid() {
  World* const world = World::current();
  return world == nullptr ? ::getpid() : world->pid();
}

pid_t parent_pid() {
  World* const world = World::current();
  return world == nullptr ? ::getppid() : world->parent_pid();
}

bool has_variable(const std::string& name) {
  World* const world = World::current();
  return world == nullptr ? std::getenv(name.c_str()) != nullptr
                          : world->variable(name).has_value();
}

std::optional<std::string> take_variable(const std::string& name) {
  if (World* const world = World::current()) return world->variable(name);
  const char* const text = std::getenv(name.c_str());
  if (text == nullptr) return std::nullopt;
  std::string value = text;
  ::unsetenv(name.c_str());
  return value;
}

void exit_at_once(int code) {
  if (World* const world = World::current()) world->exit(code);
  ::_exit(code);
}

int poll_until(std::span<pollfd> fds, Instant deadline) {
  if (World* const world = World::current()) return world->poll(fds, deadline);
  const Duration left = std::clamp(deadline - now(), Duration(0), Duration(std::chrono::hours(1)));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = static_cast<time_t>(seconds.count()),
                         .tv_nsec = static_cast<long>((left - seconds).count())};
  return ::ppoll(fds.data(), fds.size(), &timeout, nullptr);
}

}  // namespace teson
