#include "teson/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace teson::net {
namespace {

using ::testing::HasSubstr;

TEST(Address, texts_are_read_and_written_back) {
  for (const std::string text :
       {"unix:/run/teson/a.sock", "tcp:10.0.0.1:4000", "tcp:[::1]:0", "tcp:[fe80::1]:65535",
        "tcp:node7.example:4000", "tcp:localhost:1", "unix:/tmp/with space/ü.sock"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address) << address.error().describe();
    EXPECT_EQ(address->to_string(), text);
    EXPECT_EQ(Address::parse(address->to_string()).value(), *address);
  }
}

TEST(Address, parts_are_told_apart) {
  const auto six = Address::parse("tcp:[::1]:70").value();
  EXPECT_EQ(six.family(), Address::Family::tcp);
  EXPECT_EQ(six.host(), "::1");
  EXPECT_EQ(six.port(), 70);
  EXPECT_EQ(Address::parse("unix:/a/b").value().path(), "/a/b");
}

TEST(Address, only_this_machine_counts_as_loopback) {
  for (const char* text :
       {"unix:/a", "tcp:127.0.0.1:1", "tcp:127.9.9.9:1", "tcp:[::1]:1", "tcp:localhost:1"}) {
    EXPECT_TRUE(Address::parse(text).value().is_loopback()) << text;
  }
  for (const char* text : {"tcp:0.0.0.0:1", "tcp:[::]:1", "tcp:10.0.0.1:1", "tcp:128.0.0.1:1",
                           "tcp:localhost.example:1"}) {
    EXPECT_FALSE(Address::parse(text).value().is_loopback()) << text;
  }
  EXPECT_FALSE(Address{}.is_loopback());
}

TEST(Address, wrong_texts_are_refused_with_the_reason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "unix: or tcp:"},
      {"/tmp/a.sock", "unix: or tcp:"},
      {"http:a:1", "unix: or tcp:"},
      {"unix:", "absolute path"},
      {"unix:a.sock", "absolute path"},
      {"unix:/", "absolute path"},
      {"unix:/folder/", "absolute path"},
      {std::string("unix:/a\0b", 9), "zero byte"},
      {"tcp:", "expected a port"},
      {"tcp:host", "expected a port"},
      {"tcp:host:", "port from 0 to 65535"},
      {"tcp:host:65536", "port from 0 to 65535"},
      {"tcp:host:-1", "port from 0 to 65535"},
      {"tcp:host:1x", "port from 0 to 65535"},
      {"tcp:host:99999999999999999999", "port from 0 to 65535"},
      {"tcp::80", "expected a name"},
      {"tcp:a b:80", "expected a name"},
      {"tcp:::1:80", "brackets"},
      {"tcp:[::1]", "']:port'"},
      {"tcp:[::1:80", "']:port'"},
      {"tcp:[10.0.0.1]:80", "not an IPv6"},
      {"tcp:[]:80", "not an IPv6"},
      {"tcp:" + std::string(300, 'a') + ":1", "at most 253"},
  };
  for (const auto& [text, reason] : cases) {
    const auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().kind, ErrorKind::invalid);
    EXPECT_THAT(address.error().message, HasSubstr(reason)) << text;
  }
}

TEST(Address, a_path_too_long_for_the_system_is_refused_with_advice) {
  EXPECT_TRUE(Address::unix_path("/" + std::string(106, 'a')));
  const auto address = Address::unix_path("/" + std::string(107, 'a'));
  ASSERT_FALSE(address);
  EXPECT_THAT(address.error().message, HasSubstr("108 bytes"));
  EXPECT_THAT(address.error().message, HasSubstr("shorter name"));
}

}  // namespace
}  // namespace teson::net
