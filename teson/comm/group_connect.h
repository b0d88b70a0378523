#pragma once

#include <cstdint>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/comm/acceptor.h"
#include "teson/comm/host_transport.h"
#include "teson/net/socket.h"

namespace teson::comm {

/// Connects one rank with all others of its group: to the lower ranks it connects, from the higher
/// ones it takes what the acceptor has. A connection counts when both ends have called connect: the
/// acceptor's end then says welcome. Blocks. `aborted` (to be replaced by the real reason) when
/// cancel_fd becomes readable.
Result<std::vector<net::Socket>> connect_group(const GroupOptions& group,
                                               const HostTransportOptions& transport,
                                               Acceptor& acceptor, int cancel_fd);

}  // namespace teson::comm
