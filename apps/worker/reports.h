#pragma once

#include <cstdint>
#include <string>

#include "teson/actor/actor.h"
#include "teson/checkpoint/async_writer.h"
#include "teson/job/control.h"
#include "teson/train/trainer.h"

namespace teson::apps {

/// The checkpoint that this process began from; an empty path: none.
struct Origin {
  std::string checkpoint;
  std::int64_t step = 0;
};

/// What a trainer tells, as casts to the controller. A cast that cannot be sent is dropped:
/// training does not wait for its audience.
train::TrainerEvents report_to(const actor::Actor<job::RunObserver>& observer, int replica,
                               const Origin& origin);
void report_checkpoint(const actor::Actor<job::RunObserver>& observer,
                       const CheckpointOutcome& outcome);

}  // namespace teson::apps
