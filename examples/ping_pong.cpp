// Two players in two processes send each other a ball, and nobody waits for a reply: each move is a
// cast. Both are short-winded, so their handlers run where the ball is received.
#include <chrono>
#include <cstdio>
#include <future>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"

using namespace teson;

struct Player;
/// The player to send it to comes with the ball.
struct Ball {
  actor::ActorRef<Player> thrower;
  int throws_left = 0;
};

struct Player {
  virtual ~Player() = default;
  virtual void take(const Ball& ball) = 0;
  using endpoints = actor::Endpoints<&Player::take>;
};

constexpr actor::ActorOptions quick{.handlers = actor::Handlers::in_place};

/// In the child.
struct Far final : Player {
  explicit Far(actor::Proc& home) : proc(home) {}
  void take(const Ball& ball) override {
    (void)proc.actor(ball.thrower).cast<&Player::take>(Ball{{}, ball.throws_left});
  }
  actor::Proc& proc;
};

/// In this process.
struct Near final : Player {
  void take(const Ball& ball) override {
    if (ball.throws_left == 0) return done.set_value();
    (void)far.at(0).cast<&Player::take>(Ball{self, ball.throws_left - 1});
  }
  actor::ActorMesh<Player> far;
  actor::ActorRef<Player> self;
  std::promise<void> done;
  explicit Near(actor::ActorMesh<Player> other) : far(std::move(other)) {}
};

Result<void> play_far() {
  TESON_TRY(auto proc, actor::Proc::attach());
  proc->serve<Player>([&proc](const actor::ProcContext&) { return std::make_unique<Far>(*proc); },
                      quick);
  proc->start();
  proc->wait();
  return {};
}

Result<void> play(int throws) {
  actor::System system;
  TESON_TRY(auto procs, actor::this_host(system).spawn_procs({{"player", 1}}, {}));
  auto near = std::make_unique<Near>(procs.spawn<Player>("far"));
  Near& player = *near;
  player.self = system.host<Player>("near", std::move(near), quick);
  auto done = player.done.get_future();
  const auto began = std::chrono::steady_clock::now();
  TESON_TRY_VOID(system.actor(player.self).cast<&Player::take>(Ball{{}, throws}));
  done.wait();
  const double us = 1000 * to_ms(std::chrono::steady_clock::now() - began);
  std::printf("%d throws there and back, %.1f us each\n", throws, us / throws);
  return {};
}

int main() {
  const auto done = actor::Proc::is_child() ? play_far() : play(10'000);
  if (!done) std::fprintf(stderr, "%s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}
