#include "teson/torchft/listen_address.h"

#include <gtest/gtest.h>

namespace teson::torchft {
namespace {

TEST(ListenAddress, reads_host_and_port) {
  const auto name = parse_listen_address("localhost:29510");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->host, "localhost");
  EXPECT_EQ(name->port, 29510);
  EXPECT_FALSE(name->every_interface);
  EXPECT_EQ(parse_listen_address("[::1]:0")->host, "[::1]");
  EXPECT_TRUE(parse_listen_address("[::]:29510")->every_interface);
  EXPECT_TRUE(parse_listen_address("0.0.0.0:1")->every_interface);
}

TEST(ListenAddress, refuses_what_is_no_host_and_port) {
  for (const auto* text :
       {"", ":", ":1", "host", "host:", "host:x", "host:-1", "host:65536", "host:1x", "::1:5",
        "unix:/tmp/socket", "http://host:1", "[::1:5", "host: 5", "a b:5"})
    EXPECT_FALSE(parse_listen_address(text)) << text;
}

TEST(ListenAddress, advertises_the_host_that_was_bound) {
  EXPECT_EQ(advertised_host(*parse_listen_address("127.0.0.1:0")), "127.0.0.1");
  EXPECT_FALSE(advertised_host(*parse_listen_address("[::]:0")).empty());
  EXPECT_NE(advertised_host(*parse_listen_address("[::]:0")), "[::]");
}

}  // namespace
}  // namespace teson::torchft
