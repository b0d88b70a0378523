#include "apps/worker/fault_injector.h"

#include <csignal>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/log.h"

namespace teson::apps {

FaultInjector::FaultInjector(job::FaultPlan plan, std::filesystem::path faults, int replica,
                             const Clock& clock)
    : plan_(std::move(plan)), faults_(std::move(faults)), replica_(replica), clock_(clock) {}

bool FaultInjector::operator()(std::int64_t step, job::FaultPhase phase) const {
  bool poison = false;
  for (const auto& fault : plan_.due(replica_, step, phase)) {
    const auto claimed = job::claim_fault(faults_, fault, clock_.now());
    if (!claimed) log_error("inject", "{}", claimed.error().message);
    if (!claimed || !*claimed) continue;
    switch (fault.kind) {
      case job::FaultKind::kill:
        ::kill(::getpid(), SIGKILL);
        break;
      case job::FaultKind::stop:
        ::kill(::getpid(), SIGSTOP);
        break;
      case job::FaultKind::segfault:
        std::signal(SIGSEGV, SIG_DFL);
        ::kill(::getpid(), SIGSEGV);
        break;
      case job::FaultKind::exception:
        throw std::runtime_error(fmt::format("injected exception at step {}", step));
      case job::FaultKind::hang:
        while (true)
          std::this_thread::sleep_for(std::chrono::hours(1));
      case job::FaultKind::nan:
        poison = true;
        break;
    }
  }
  return poison;
}

}  // namespace teson::apps
