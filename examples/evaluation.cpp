// Evaluation beside training: one mesh trains and publishes its weights now and then; a second one
// takes the newest that there are and judges them, and neither waits for the other.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"

using namespace teson;

struct Weights {
  int step = 0;
  std::vector<double> values;
};
/// In the owner's process.
struct Board {
  void publish(Weights weights) { held = std::move(weights); }
  Weights newest() { return held; }
  using endpoints = actor::Endpoints<&Board::publish, &Board::newest>;
  Weights held;
};

/// Finds square roots, one a weight, by Newton's method.
struct Trainer {
  actor::Actor<Board> board;
  Result<void> train(int steps, const std::vector<double>& targets) {
    Weights weights{0, targets};
    for (weights.step = 1; weights.step <= steps; ++weights.step) {
      for (std::size_t i = 0; i < targets.size(); ++i)
        weights.values[i] = (weights.values[i] + targets[i] / weights.values[i]) / 2;
      TESON_TRY_VOID(board.cast<&Board::publish>(weights));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a step of something larger
    }
    return {};
  }
  using endpoints = actor::Endpoints<&Trainer::train>;
  using arguments = std::tuple<actor::ActorRef<Board>>;
};

struct Score {
  int step = 0;
  double loss = 0;
};
struct Judge {
  actor::Actor<Board> board;
  Result<Score> judge(const std::vector<double>& targets) {
    TESON_TRY(const Weights weights, board.call<&Board::newest>().wait());
    Score score{weights.step, 0};
    for (std::size_t i = 0; i < weights.values.size(); ++i)
      score.loss += std::abs(weights.values[i] * weights.values[i] - targets[i]);
    return score;
  }
  using endpoints = actor::Endpoints<&Judge::judge>;
  using arguments = std::tuple<actor::ActorRef<Board>>;
};

Result<void> work() {
  TESON_TRY(auto proc, actor::Proc::attach());
  proc->serve<Trainer>([&](const auto&, actor::ActorRef<Board> board) {
    return std::make_unique<Trainer>(Trainer{proc->actor(board)});
  });
  proc->serve<Judge>([&](const auto&, actor::ActorRef<Board> board) {
    return std::make_unique<Judge>(Judge{proc->actor(board)});
  });
  proc->start();
  proc->wait();
  return {};
}

Result<void> own() {
  actor::System system;
  const std::vector<double> targets{2, 3, 5, 7};
  const auto board = system.host<Board>("board", std::make_unique<Board>());
  TESON_TRY(auto train_procs, actor::this_host(system).spawn_procs({{"trainer", 1}}, {}));
  TESON_TRY(auto judge_procs, actor::this_host(system).spawn_procs({{"judge", 2}}, {}));
  const auto judges = judge_procs.spawn<Judge>("judge", board);
  const auto trainer = train_procs.spawn<Trainer>("trainer", board);
  auto training = trainer.call_one<&Trainer::train>(20, targets);
  for (bool last = false; !last;) {
    last = training.done();
    TESON_TRY(const Score score, judges.choose<&Judge::judge>(targets).wait());
    if (score.step > 0) std::printf("step %2d: loss %.3g\n", score.step, score.loss);
    if (last && score.loss > 1e-12) return fail(ErrorKind::failed, "expected a loss of nothing");
  }
  return training.wait();
}

int main() {
  const auto done = actor::Proc::is_child() ? work() : own();
  if (!done) std::fprintf(stderr, "%s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}
