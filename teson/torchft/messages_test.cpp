#include "teson/torchft/messages.h"

#include <random>

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <gtest/gtest.h>

#include "teson/torchft/lighthouse.pb.h"

namespace teson::torchft {
namespace {

grpc::ByteBuffer buffer(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

std::string text(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  EXPECT_TRUE(bytes.DumpToSingleSlice(&slice).ok());
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

// Written by hand: a request whose member has id "ab" (1), step 7 (4), shrink_only (6),
// commit_failures 2 (8) and the strings "h0", "h1" in the unknown field 9; the length of the member
// comes first.
const std::string member_bytes(
    "\x0a\x02"
    "ab"
    "\x20\x07\x30\x01\x40\x02\x4a\x02"
    "h0"
    "\x4a\x02"
    "h1",
    18);
const std::string request_bytes = std::string("\x0a\x12", 2) + member_bytes;

TEST(Messages, a_member_keeps_the_fields_that_are_not_known) {
  const auto member = read_member(buffer(request_bytes));
  ASSERT_TRUE(member);
  EXPECT_EQ(member->replica_id, "ab");
  EXPECT_TRUE(member->shrink_only);
  EXPECT_EQ(member->commit_failures, 2);
  EXPECT_EQ(member->payload, member_bytes);
}

TEST(Messages, a_reply_has_the_members_as_they_came_and_its_time) {
  quorum::TorchftQuorum formed;
  formed.quorum_id = 5;
  formed.members = {*read_member(buffer(request_bytes))};
  const auto bytes = text(write_reply(formed, 3'000'000'004));
  // LighthouseQuorumResponse{1: Quorum{1: 5, 2: member, 3: {1: 3, 2: 4}}}
  const auto quorum =
      std::string("\x08\x05\x12\x12") + member_bytes + std::string("\x1a\x04\x08\x03\x10\x04");
  EXPECT_EQ(bytes, std::string("\x0a") + static_cast<char>(quorum.size()) + quorum);
}

TEST(Messages, a_request_without_a_requester_is_refused_in_the_words_of_torchft) {
  EXPECT_EQ(read_member(buffer("")).error().message, "missing requester");
}

TEST(Messages, every_truncation_is_read_or_refused) {
  for (std::size_t size = 0; size < request_bytes.size(); ++size)
    EXPECT_FALSE(read_member(buffer(request_bytes.substr(0, size)))) << size;
}

TEST(Messages, garbage_is_read_or_refused_and_what_is_read_can_be_sent) {
  const google::protobuf::LogSilencer silencer;
  std::mt19937_64 random(7);
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = request_bytes;
    for (int flips = 0; flips < 3; ++flips)
      bytes[2 + random() % (bytes.size() - 2)] = static_cast<char>(random());
    auto member = read_member(buffer(bytes));
    if (!member) continue;
    ++read;
    quorum::TorchftQuorum formed;
    formed.members = {std::move(*member)};
    auto reply = write_reply(formed, 0);
    ::torchft::LighthouseQuorumResponse response;
    EXPECT_TRUE(grpc::SerializationTraits<::torchft::LighthouseQuorumResponse>::Deserialize(
                    &reply, &response)
                    .ok());
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace teson::torchft
