#pragma once

#include <cstdint>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "teson/base/error.h"
#include "teson/quorum/torchft_quorum.h"

namespace teson::torchft {

/// The requester of a LighthouseQuorumRequest; its payload is the QuorumMember as bytes, with every
/// field that we do not know. Fails with `invalid`: no such message, or no requester in it.
Result<quorum::TorchftMember> read_member(const grpc::ByteBuffer& request);

/// The replica_id of a LighthouseHeartbeatRequest. Fails with `invalid`.
Result<std::string> read_heartbeat(const grpc::ByteBuffer& request);

/// The LighthouseQuorumResponse for all members of a quorum. `wall_ns`: when it was formed, since
/// 1970.
grpc::ByteBuffer write_reply(const quorum::TorchftQuorum& formed, std::int64_t wall_ns);

}  // namespace teson::torchft
