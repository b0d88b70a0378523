#pragma once

#include "teson/actor/actor.h"
#include "teson/checkpoint/async_writer.h"
#include "teson/job/control.h"
#include "teson/train/trainer.h"

namespace teson::apps {

/// What a trainer tells, as casts to the controller. A cast that cannot be sent is dropped:
/// training does not wait for its audience.
train::TrainerEvents report_to(const actor::Actor<job::RunObserver>& observer, int replica);
void report_checkpoint(const actor::Actor<job::RunObserver>& observer,
                       const CheckpointOutcome& outcome);

}  // namespace teson::apps
