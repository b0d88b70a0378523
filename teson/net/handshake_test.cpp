#include "teson/net/handshake.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include "teson/base/random.h"
#include "teson/net/socket.h"

namespace teson::net {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

HandshakeOptions initiator() {
  return {HandshakeRole::initiator, "job-1", "comm", "a secret", bytes_of("from the initiator")};
}
HandshakeOptions acceptor() {
  return {HandshakeRole::acceptor, "job-1", "comm", "a secret", bytes_of("from the acceptor")};
}

/// Feeds all of `input`; what is left over when done or failed stays unread.
Result<void> feed_all(Handshake& handshake, std::span<const std::byte> input) {
  while (!input.empty() && !handshake.done()) {
    const std::size_t bytes = std::min(handshake.bytes_wanted(), input.size());
    TESON_TRY_VOID(handshake.feed(input.first(bytes)));
    input = input.subspan(bytes);
  }
  return {};
}

struct Outcome {
  Result<void> initiator;
  Result<void> acceptor;
};

Outcome shake(Handshake& a, Handshake& b) {
  Outcome outcome;
  for (int round = 0; round < 4; ++round) {
    const Bytes from_a = a.take_output();
    const Bytes from_b = b.take_output();
    if (outcome.acceptor) outcome.acceptor = feed_all(b, from_a);
    if (outcome.initiator) outcome.initiator = feed_all(a, from_b);
  }
  return outcome;
}

Outcome shake(HandshakeOptions a, HandshakeOptions b) {
  Handshake first(std::move(a));
  Handshake second(std::move(b));
  return shake(first, second);
}

TEST(Handshake, both_ends_learn_each_others_body) {
  Handshake a(initiator());
  Handshake b(acceptor());
  const Outcome outcome = shake(a, b);
  ASSERT_TRUE(outcome.initiator) << outcome.initiator.error().describe();
  ASSERT_TRUE(outcome.acceptor) << outcome.acceptor.error().describe();
  EXPECT_TRUE(a.done());
  EXPECT_TRUE(b.done());
  EXPECT_EQ(a.peer_body(), bytes_of("from the acceptor"));
  EXPECT_EQ(b.peer_body(), bytes_of("from the initiator"));
}

TEST(Handshake, works_byte_by_byte_and_wants_nothing_beyond_its_end) {
  Handshake a(initiator());
  Handshake b(acceptor());
  const auto drip = [](Handshake& to, const Bytes& bytes) {
    for (const std::byte& byte : bytes)
      ASSERT_TRUE(to.feed({&byte, 1}));
  };
  drip(b, a.take_output());
  drip(a, b.take_output());
  drip(b, a.take_output());
  EXPECT_TRUE(b.done());
  EXPECT_TRUE(a.done());
  EXPECT_EQ(a.bytes_wanted(), 0u);
  EXPECT_EQ(b.bytes_wanted(), 0u);
}

TEST(Handshake, the_error_names_what_differs) {
  const auto with = [](HandshakeOptions options, auto change) {
    change(options);
    return options;
  };
  const auto job = shake(initiator(), with(acceptor(), [](auto& o) { o.job_id = "job-2"; }));
  EXPECT_THAT(job.initiator.error().message,
              HasSubstr("job id differs: 'job-1' here, 'job-2' at the peer"));
  EXPECT_THAT(job.acceptor.error().message,
              HasSubstr("job id differs: 'job-2' here, 'job-1' at the peer"));
  const auto purpose = shake(initiator(), with(acceptor(), [](auto& o) { o.purpose = "quorum"; }));
  EXPECT_THAT(purpose.initiator.error().message,
              HasSubstr("purpose differs: 'comm' here, 'quorum'"));
  const auto secret = shake(initiator(), with(acceptor(), [](auto& o) { o.secret = "another"; }));
  EXPECT_THAT(secret.initiator.error().message, HasSubstr("secret differs"));
  EXPECT_THAT(secret.acceptor.error().message, HasSubstr("secret differs"));
  const auto none = shake(initiator(), with(acceptor(), [](auto& o) { o.secret = ""; }));
  EXPECT_THAT(none.initiator.error().message,
              HasSubstr("secret differs: one here, none at the peer"));
  EXPECT_THAT(none.acceptor.error().message,
              HasSubstr("secret differs: none here, one at the peer"));
  const auto role = shake(initiator(), initiator());
  EXPECT_THAT(role.initiator.error().message, HasSubstr("role differs"));
}

TEST(Handshake, another_protocol_or_version_is_named) {
  Handshake http(acceptor());
  EXPECT_THAT(
      feed_all(http, bytes_of("GET / HTTP/1.1\r\nHost: somewhere.example\r\n")).error().message,
      HasSubstr("magic"));
  Handshake newer(acceptor());
  Bytes hello = Handshake(initiator()).take_output();
  hello[4] = std::byte{2};
  EXPECT_THAT(feed_all(newer, hello).error().message,
              HasSubstr("protocol version differs: 1 here, 2 at the peer"));
}

TEST(Handshake, lengths_over_the_bounds_are_refused_before_they_are_read) {
  for (const std::size_t at : {8, 10, 12}) {
    Bytes hello = Handshake(initiator()).take_output();
    hello[at] = hello[at + 1] = std::byte{0xff};
    Handshake handshake(acceptor());
    const auto result = feed_all(handshake, std::span(hello).first(32));
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("at most 128, 32, 4096"));
  }
}

TEST(Handshake, proofs_are_hmac_sha256_over_both_hellos) {
  Handshake a(initiator());
  Handshake b(acceptor());
  const Bytes hello_a = a.take_output();
  const Bytes hello_b = b.take_output();
  ASSERT_TRUE(feed_all(a, hello_b));
  const Bytes proof = a.take_output();
  Bytes text = bytes_of("teson handshake proof");
  text.insert(text.end(), hello_a.begin(), hello_a.end());
  text.insert(text.end(), hello_b.begin(), hello_b.end());
  unsigned char expected[32];
  unsigned int length = 0;
  HMAC(EVP_sha256(), "a secret", 8, reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), expected, &length);
  ASSERT_EQ(proof.size(), 32u);
  EXPECT_EQ(std::memcmp(proof.data(), expected, 32), 0);
}

TEST(Handshake, a_reflected_or_replayed_proof_is_refused) {
  Handshake a(initiator());
  // An impostor without the secret sends back what it hears, with the role changed.
  Bytes hello = a.take_output();
  hello[6] = std::byte{1};
  ASSERT_TRUE(feed_all(a, hello));
  EXPECT_FALSE(feed_all(a, a.take_output()));
  // A recorded conversation does not fit new nonces.
  Handshake first(initiator());
  Handshake peer(acceptor());
  Bytes recorded = peer.take_output();
  ASSERT_TRUE(feed_all(peer, first.take_output()));
  const Bytes proof = peer.take_output();
  recorded.insert(recorded.end(), proof.begin(), proof.end());
  EXPECT_TRUE(feed_all(first, recorded));
  Handshake second(initiator());
  EXPECT_FALSE(feed_all(second, recorded));
}

TEST(Handshake, every_flipped_bit_ends_it) {
  for (std::size_t bit = 0;; ++bit) {
    Handshake a(initiator());
    Handshake b(acceptor());
    Bytes stream = b.take_output();
    ASSERT_TRUE(feed_all(b, a.take_output()));
    const Bytes proof = b.take_output();
    stream.insert(stream.end(), proof.begin(), proof.end());
    if (bit == 8 * stream.size()) break;
    stream[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto result = feed_all(a, stream);
    EXPECT_FALSE(result && a.done()) << bit;
  }
}

TEST(Handshake, random_bytes_never_complete_it) {
  CounterRandom random({11});
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes(random.below(300));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random.next());
    const Bytes hello = Handshake(initiator()).take_output();
    const std::size_t good = random.below(hello.size());
    std::copy_n(hello.begin(), std::min(good, bytes.size()), bytes.begin());
    Handshake handshake(acceptor());
    (void)feed_all(handshake, bytes);
    EXPECT_FALSE(handshake.done());
  }
}

struct Pair {
  Socket a;
  Socket b;
};
Pair make_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Address address = Address::unix_path("/pair").value();
  return {Socket(Fd(fds[0]), address), Socket(Fd(fds[1]), address)};
}
Instant in(std::chrono::milliseconds time) {
  return SystemClock().now() + time;
}

TEST(RunHandshake, works_over_sockets_and_leaves_later_bytes_alone) {
  auto [a, b] = make_pair();
  std::thread peer([&b = b] {
    ASSERT_TRUE(run_handshake(b, acceptor(), in(std::chrono::seconds(10))));
    ASSERT_TRUE(b.send_all(bytes_of("later"), in(std::chrono::seconds(10))));
  });
  const auto body = run_handshake(a, initiator(), in(std::chrono::seconds(10)));
  ASSERT_TRUE(body) << body.error().describe();
  EXPECT_EQ(*body, bytes_of("from the acceptor"));
  Bytes later(5);
  EXPECT_TRUE(a.receive_all(later, in(std::chrono::seconds(10))));
  EXPECT_EQ(later, bytes_of("later"));
  peer.join();
}

TEST(RunHandshake, silence_ends_at_the_deadline) {
  auto [a, b] = make_pair();
  const auto result = run_handshake(a, initiator(), in(std::chrono::milliseconds(20)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::timed_out);
}

TEST(RunHandshake, half_a_handshake_is_a_disconnection_wherever_it_is_cut) {
  Handshake whole(acceptor());
  Bytes stream = whole.take_output();
  stream.resize(stream.size() + 31);  // And all but one byte of a proof.
  for (std::size_t length = 0; length < stream.size(); ++length) {
    auto [a, b] = make_pair();
    ASSERT_TRUE(
        b.send_all(std::span<const std::byte>(stream).first(length), in(std::chrono::seconds(1))));
    ::shutdown(b.fd(), SHUT_WR);
    const auto result = run_handshake(a, initiator(), in(std::chrono::seconds(10)));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::disconnected)
        << length << ": " << result.error().describe();
  }
}

TEST(RunHandshake, without_a_secret_only_this_machine_is_spoken_to) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Fd other(fds[1]);
  Socket far(Fd{fds[0]}, Address::tcp("10.0.0.1", 1).value());
  HandshakeOptions open = initiator();
  open.secret.clear();
  const auto result = run_handshake(far, open, in(std::chrono::seconds(1)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace teson::net
