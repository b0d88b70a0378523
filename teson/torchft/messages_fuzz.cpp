#include <cstddef>
#include <cstdint>

#include "teson/torchft/messages.h"

/// Whatever is read as a member can be sent to the others.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const grpc::Slice slice(data, size);
  auto member = teson::torchft::read_member(grpc::ByteBuffer(&slice, 1));
  if (!member) return 0;
  teson::quorum::TorchftQuorum formed;
  formed.members.push_back(std::move(*member));
  teson::torchft::write_reply(formed, 0);
  return 0;
}
