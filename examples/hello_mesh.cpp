// Six processes in two rows of three. Each says where it stands; then one column is asked alone.
#include <cstdio>
#include <string>

#include "teson/actor/proc.h"
#include "teson/actor/system.h"

using namespace teson;

class Greeter {
 public:
  explicit Greeter(actor::MeshPlace place) : place_(std::move(place)) {}

  Result<std::string> hello(const std::string& name) {
    TESON_TRY(const auto row, place_.coordinate("row"));
    TESON_TRY(const auto column, place_.coordinate("column"));
    // The same actor stands elsewhere in the slice that a message was sent to.
    const auto here = actor::message_context();
    return "hello " + name + " from row " + std::to_string(row) + ", column " +
           std::to_string(column) + ", rank " + std::to_string(here.rank) + " of " +
           std::to_string(here.size) + " that were asked";
  }

  using endpoints = actor::Endpoints<&Greeter::hello>;

 private:
  const actor::MeshPlace place_;
};

Result<void> greet() {
  TESON_TRY(auto proc, actor::Proc::attach());
  proc->serve<Greeter>(
      [](const actor::ProcContext& context) { return std::make_unique<Greeter>(context); });
  proc->start();
  proc->wait();
  return {};
}

Result<void> ask() {
  actor::System system;
  TESON_TRY(auto procs, actor::this_host(system).spawn_procs({{"row", 2}, {"column", 3}}, {}));
  const auto greeters = procs.spawn<Greeter>("greeter");
  for (const auto& reply : greeters.call<&Greeter::hello>("all").wait()) {
    if (!reply) return Failure(reply.error());
    std::printf("%s\n", reply->c_str());
  }
  TESON_TRY(const auto last, greeters.at("column", 2));
  for (auto stream = last.stream<&Greeter::hello>("last column"); auto one = stream.next();) {
    if (!one->reply) return Failure(one->reply.error());
    std::printf("%s\n", one->reply->c_str());
  }
  return {};
}

int main() {
  const auto done = actor::Proc::is_child() ? greet() : ask();
  if (!done) std::fprintf(stderr, "%s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}
