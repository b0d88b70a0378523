// A pool of processes that adds up numbers, loses one of its own now and then, and does not mind.
#include <cstdio>
#include <cstdlib>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"

using namespace teson;

struct Adder {  // what callers see
  virtual ~Adder() = default;
  virtual long add(long from, long to) = 0;
  using endpoints = actor::Endpoints<&Adder::add>;
};

struct AdderActor final : Adder {  // what the processes of the pool run
  explicit AdderActor(std::size_t rank) : calls_left(20 + 2 * rank) {}
  long add(long from, long to) override {
    if (--calls_left == 0) std::abort();  // a bug
    return (from + to - 1) * (to - from) / 2;
  }
  std::size_t calls_left;
};

Result<void> work() {
  TESON_TRY(auto proc, actor::Proc::attach());
  proc->serve<Adder>(
      [](const actor::ProcContext& context) { return std::make_unique<AdderActor>(context.rank); });
  proc->start();
  proc->wait();
  return {};
}

Result<long> add_up(long below) {
  actor::System system;
  TESON_TRY(auto pool, actor::this_host(system).spawn_procs({{"worker", 4}}, {.name = "pool"}));
  pool.supervise({.strategy = actor::Strategy::one_for_one,
                  .on_exit = [](const actor::ProcExit& exit) {  // milliseconds after the death
                    std::printf("%s\n", exit.describe("pool").c_str());
                  }});
  const auto adders = pool.spawn<Adder>("adder");
  long total = 0;
  for (long from = 0; from < below; from += 1000) {
    auto part = adders.choose<&Adder::add>(from, from + 1000).wait();
    if (!part) part = adders.choose<&Adder::add>(from, from + 1000).wait();  // harmless here
    if (!part) return part;
    total += *part;
  }
  return total;
}

int main() {
  if (actor::Proc::is_child()) return work() ? 0 : 1;
  return add_up(100'000) == 4'999'950'000 ? 0 : 1;
}
