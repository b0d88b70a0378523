#pragma once

// How an owner asks its processes what can be seen of them; not for use outside actor/.

#include <memory>
#include <vector>

#include "teson/actor/pending.h"
#include "teson/actor/wire.h"
#include "teson/base/clock.h"

namespace teson::actor::detail {

class RemoteProc;
struct Runtime;

/// Asks them all: a slot each, which ends as that of a call does. Their I/O threads answer.
std::shared_ptr<PendingCall> begin_inspect(Runtime& runtime, InspectRequest request,
                                           const std::vector<std::shared_ptr<RemoteProc>>& procs,
                                           Instant deadline);

}  // namespace teson::actor::detail
