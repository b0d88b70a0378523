#include "teson/net/codec.h"

#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "teson/base/clock.h"

namespace teson::net {
namespace {

enum class Colour : std::uint8_t { red = 0, green = 1, violet = 7 };
enum class Other : std::uint8_t { red = 0, green = 1, blue = 2 };

struct Inner {
  std::int16_t number = 0;
  std::string text;
  bool operator==(const Inner&) const = default;
};
struct Everything {
  bool flag = false;
  Colour colour = Colour::red;
  double real = 0;
  std::vector<float> floats;
  std::vector<Inner> inners;
  std::vector<bool> bits;
  std::array<std::uint32_t, 3> triple{};
  std::optional<Inner> maybe;
  std::map<std::string, std::int64_t> counts;
  std::pair<std::uint8_t, Inner> pair;
  std::variant<std::uint64_t, Inner> either;
  Duration duration{};
  Instant instant{};
  Result<std::int32_t> result = 0;
  bool operator==(const Everything&) const = default;
};

Everything sample() {
  return {.flag = true,
          .colour = Colour::violet,
          .real = -0.5,
          .floats = {1.0F, -2.0F, std::numeric_limits<float>::infinity()},
          .inners = {{-7, "first"}, {9, ""}},
          .bits = {true, false, true},
          .triple = {1, 2, 0xFFFFFFFF},
          .maybe = Inner{3, "there"},
          .counts = {{"a", 1}, {"b", -2}},
          .pair = {5, {6, "six"}},
          .either = Inner{1, "variant"},
          .duration = std::chrono::milliseconds(3),
          .instant = Instant(Duration(77)),
          .result = fail(ErrorKind::overloaded, "full")};
}

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values)
    out.push_back(static_cast<char>(value));
  return out;
}

TEST(Codec, lays_numbers_out_little_endian_at_fixed_width) {
  EXPECT_EQ(encode(std::uint32_t{0x01020304}), bytes({4, 3, 2, 1}));
  EXPECT_EQ(encode(std::int16_t{-2}), bytes({0xFE, 0xFF}));
  EXPECT_EQ(encode(1.0F), bytes({0, 0, 0x80, 0x3F}));
  EXPECT_EQ(encode(true), bytes({1}));
  EXPECT_EQ(encode(Colour::violet), bytes({7}));
  EXPECT_EQ(encode(std::string("hi")), bytes({2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i'}));
  EXPECT_EQ(encode(Inner{1, ""}), bytes({1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encode(std::optional<std::uint8_t>{}), bytes({0}));
}

TEST(Codec, returns_what_was_encoded) {
  const auto value = sample();
  const auto decoded = decode<Everything>(encode(value));
  ASSERT_TRUE(decoded) << decoded.error().describe();
  EXPECT_EQ(*decoded, value);
}

TEST(Codec, knows_the_size_beforehand) {
  const auto value = sample();
  EXPECT_EQ(detail::encoded_size(value), encode(value).size());
}

TEST(Codec, refuses_every_truncation_and_every_surplus) {
  const std::string whole = encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees the first byte read beyond it.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto decoded = decode<Everything>(std::string_view(part.data(), part.size()));
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().kind, ErrorKind::invalid);
  }
  EXPECT_FALSE(decode<Everything>(whole + "x"));
}

TEST(Codec, survives_garbage) {
  std::mt19937 random(1);
  const std::string whole = encode(sample());
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)decode<Everything>(damaged);
  }
}

TEST(Codec, refuses_a_claimed_length_before_allocating) {
  for (const std::uint64_t claimed : {1ULL << 31, 1ULL << 33, 1ULL << 61, ~0ULL}) {
    EXPECT_FALSE(decode<std::string>(encode(claimed)));
    EXPECT_FALSE(decode<std::vector<double>>(encode(claimed)));
    EXPECT_FALSE(decode<std::vector<Inner>>(encode(claimed)));
    EXPECT_FALSE((decode<std::map<int, int>>(encode(claimed))));
  }
}

TEST(Codec, refuses_values_outside_their_type) {
  EXPECT_FALSE(decode<bool>(bytes({2})));
  EXPECT_FALSE(decode<Colour>(bytes({2})));
  EXPECT_FALSE(decode<Colour>(bytes({200})));
  EXPECT_TRUE(decode<Colour>(bytes({7})));
  EXPECT_FALSE((decode<std::variant<std::uint8_t, bool>>(bytes({2, 0}))));
  EXPECT_FALSE(
      (decode<std::map<std::uint8_t, std::uint8_t>>(bytes({2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2}))));
}

TEST(Codec, gives_views_into_the_input) {
  const std::string whole = encode(std::vector<std::byte>{std::byte{1}, std::byte{2}});
  const auto view = decode<std::span<const std::byte>>(whole);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->size(), 2U);
  EXPECT_EQ(static_cast<const void*>(view->data()), whole.data() + 8);
}

TEST(Codec, hash_tells_layouts_apart_and_ignores_names) {
  struct Same {
    short n;
    std::string s;
  };
  struct Swapped {
    std::string s;
    short n;
  };
  EXPECT_EQ(schema_hash<Inner>(), schema_hash<Same>());
  EXPECT_NE(schema_hash<Inner>(), schema_hash<Swapped>());
  EXPECT_NE(schema_hash<Colour>(), schema_hash<Other>());
  EXPECT_NE(schema_hash<int>(), schema_hash<unsigned>());
  EXPECT_NE(schema_hash<float>(), schema_hash<std::int32_t>());
  EXPECT_NE((schema_hash<std::pair<int, int>>()), (schema_hash<std::array<int, 2>>()));
  EXPECT_EQ(schema_hash<std::span<const std::byte>>(), schema_hash<std::vector<std::byte>>());
  static_assert(schema_hash<Everything>() != 0);
}

}  // namespace
}  // namespace teson::net
