#include "teson/torchft/messages.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "teson/base/check.h"
#include "teson/torchft/lighthouse.pb.h"

namespace teson::torchft {

namespace {

template <typename Message>
Result<Message> read(grpc::ByteBuffer bytes) {  // a copy shares the bytes; reading uses it up
  Message message;
  if (grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok()) return message;
  return fail(ErrorKind::invalid,
              "expected a " + Message::descriptor()->full_name() + ", found bytes that are none");
}

}  // namespace

Result<quorum::TorchftMember> read_member(const grpc::ByteBuffer& request) {
  TESON_TRY(const auto message, read<::torchft::LighthouseQuorumRequest>(request));
  if (!message.has_requester()) return fail(ErrorKind::invalid, "missing requester");
  const auto& requester = message.requester();
  return quorum::TorchftMember{requester.replica_id(), requester.shrink_only(),
                               requester.commit_failures(), requester.SerializeAsString()};
}

Result<std::string> read_heartbeat(const grpc::ByteBuffer& request) {
  TESON_TRY(const auto message, read<::torchft::LighthouseHeartbeatRequest>(request));
  return message.replica_id();
}

grpc::ByteBuffer write_reply(const quorum::TorchftQuorum& formed, std::int64_t wall_ns) {
  ::torchft::LighthouseQuorumResponse response;
  auto& quorum = *response.mutable_quorum();
  quorum.set_quorum_id(formed.quorum_id);
  for (const auto& member : formed.members)
    TESON_CHECK(quorum.add_participants()->ParseFromString(member.payload), member.replica_id);
  quorum.mutable_created()->set_seconds(wall_ns / 1'000'000'000);
  quorum.mutable_created()->set_nanos(static_cast<std::int32_t>(wall_ns % 1'000'000'000));
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace teson::torchft
