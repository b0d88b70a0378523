// Four workers fit a line to data that each has alone. The parameters live in one actor of the owner;
// workers take them, and give back gradients, each at its own pace.
#include <cmath>
#include <cstdio>
#include <vector>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"
#include "teson/base/random.h"

using namespace teson;

struct Line {
  double slope = 0;
  double intercept = 0;
};

class Parameters {
 public:
  Line take() { return line_; }
  void give(const Line& gradient) {
    line_.slope -= rate * gradient.slope;
    line_.intercept -= rate * gradient.intercept;
  }
  using endpoints = actor::Endpoints<&Parameters::take, &Parameters::give>;

 private:
  static constexpr double rate = 0.05;
  Line line_;
};

class Worker {
 public:
  Worker(actor::Proc& proc, std::size_t rank, actor::ActorRef<Parameters> server)
      : parameters_(proc.actor(server)) {
    CounterRandom random({7, rank});
    for (int i = 0; i < 200; ++i) {
      const double x = random.uniform();
      data_.push_back({x, 3 * x - 1 + 0.1 * (random.uniform() - 0.5)});
    }
  }
  Result<void> fit(int steps) {
    for (int step = 0; step < steps; ++step) {
      TESON_TRY(const Line line, parameters_.call<&Parameters::take>().wait());
      Line gradient;
      for (const auto& [x, y] : data_) {
        const double error = line.slope * x + line.intercept - y;
        gradient.slope += 2 * error * x / static_cast<double>(data_.size());
        gradient.intercept += 2 * error / static_cast<double>(data_.size());
      }
      TESON_TRY_VOID(parameters_.cast<&Parameters::give>(gradient));
    }
    return {};
  }
  using endpoints = actor::Endpoints<&Worker::fit>;
  using arguments = std::tuple<actor::ActorRef<Parameters>>;

 private:
  actor::Actor<Parameters> parameters_;
  std::vector<std::pair<double, double>> data_;
};

Result<void> work() {
  TESON_TRY(auto proc, actor::Proc::attach());
  proc->serve<Worker>(
      [&proc](const actor::ProcContext& context, actor::ActorRef<Parameters> server) {
        return std::make_unique<Worker>(*proc, context.rank, server);
      });
  proc->start();
  proc->wait();
  return {};
}

Result<void> serve() {
  actor::System system;
  const auto server = system.host<Parameters>("parameters", std::make_unique<Parameters>());
  TESON_TRY(auto procs, actor::this_host(system).spawn_procs({{"worker", 4}}, {}));
  TESON_TRY_VOID(procs.spawn<Worker>("worker", server).reduce<&Worker::fit>(actor::Count{}, 1000));
  TESON_TRY(const Line line, system.actor(server).call<&Parameters::take>().wait());
  std::printf("y = %.3f x %+.3f\n", line.slope, line.intercept);
  if (std::abs(line.slope - 3) < 0.1 && std::abs(line.intercept + 1) < 0.1) return {};
  return fail(ErrorKind::failed, "expected y = 3 x - 1, within a tenth");
}

int main() {
  const auto done = actor::Proc::is_child() ? work() : serve();
  if (!done) std::fprintf(stderr, "%s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}
