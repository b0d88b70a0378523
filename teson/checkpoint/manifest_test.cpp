#include "teson/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include "teson/checkpoint/testing.h"

namespace teson {
namespace {

Manifest example() {
  const testing::SmallState state(9900);
  Manifest manifest{.meta = state.meta, .block_bytes = 64, .sections = {}};
  manifest.sections = {plan_section("weights", 280, 160), plan_section("adam_m", 280, 160),
                       plan_section("empty", 0, 160)};
  manifest.sections[0].shards[1].checksum = 0xfedcba9876543210;
  return manifest;
}

/// The body with one piece of text replaced.
std::string body_with(std::string_view from, std::string_view to) {
  const std::string whole = *encode_manifest(example());
  std::string body = whole.substr(14, whole.size() - 14 - 32);
  const auto at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << body;
  if (at != std::string::npos) body.replace(at, from.size(), to);
  return body;
}

TEST(Manifest, round_trips) {
  const auto text = encode_manifest(example());
  ASSERT_TRUE(text) << text.error().describe();
  const auto decoded = decode_manifest(*text);
  ASSERT_TRUE(decoded) << decoded.error().describe();
  EXPECT_EQ(*decoded, example());
}

TEST(Manifest, checksum_is_xxh3_of_the_inner_object) {
  const std::string text = *encode_manifest(example());
  const auto tail = text.rfind(",\"checksum\":\"");
  const std::string body = text.substr(14, tail - 14);
  EXPECT_EQ(body.front(), '{');
  EXPECT_EQ(body.back(), '}');
  EXPECT_EQ(text.substr(tail),
            fmt::format(",\"checksum\":\"{:016x}\"}}\n", XXH3_64bits(body.data(), body.size())));
}

TEST(Manifest, every_truncation_and_every_flipped_byte_is_refused) {
  const std::string text = *encode_manifest(example());
  for (std::size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(decode_manifest(std::string_view(text).substr(0, size))) << size;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      ASSERT_FALSE(decode_manifest(flipped)) << at;
    }
  }
}

TEST(Manifest, a_body_of_garbage_is_refused_with_the_field_named) {
  const std::pair<std::pair<std::string_view, std::string_view>, std::string_view> cases[] = {
      {{"\"step\":9900", "\"step\":-1"}, "meta.step"},
      {{"\"step\":9900", "\"step\":\"9900\""}, "meta.step"},
      {{"\"step\":9900", "\"stop\":9900"}, "meta.step"},
      {{"\"format\":1", "\"format\":2"}, "format 2"},
      {{"\"block_bytes\":64", "\"block_bytes\":0"}, "block_bytes"},
      {{"\"block_bytes\":64", "\"block_bytes\":18446744073709551615"}, "block_bytes"},
      {{"\"seed\":18446744073709551615", "\"seed\":1e300"}, "meta.seed"},
      {{"weights-00001.bin", "../../../etc/passwd"}, "sections[0].files[1].name"},
      {{"fedcba9876543210", "fedcba987654321"}, "sections[0].files[1].checksum"},
      {{"\"bytes\":160", "\"bytes\":161"}, "section 'weights'"},
      {{"\"bytes\":280", "\"bytes\":9223372036854775808"}, "section 'weights'"},
      {{"[6,10]", "[6,-10]"}, "meta.parameters[0].shape"},
      {{"[6,10]", "[4294967296,4294967296]"}, "embed.weight"},
      {{"\"offset\":60", "\"offset\":18446744073709551610"}, "norm.weight"},
      {{"norm.weight", "embed.weight"}, "twice"},
      {{"\"skipped\":0", "\"skipped\":0.5"}, "meta.counters"},
  };
  for (const auto& [change, named] : cases) {
    const auto decoded = decode_manifest_body(body_with(change.first, change.second));
    ASSERT_FALSE(decoded) << change.second;
    EXPECT_NE(decoded.error().message.find(named), std::string::npos) << decoded.error().message;
  }
}

TEST(Manifest, every_prefix_of_a_body_and_deep_nesting_are_refused) {
  const std::string body = body_with("", "");
  EXPECT_TRUE(decode_manifest_body(body));
  for (std::size_t size = 0; size < body.size(); ++size) {
    ASSERT_FALSE(decode_manifest_body(std::string_view(body).substr(0, size)));
  }
  EXPECT_FALSE(decode_manifest_body(std::string(1'000'000, '[')));
  EXPECT_FALSE(decode_manifest_body(std::string(100'000, '[') + std::string(100'000, ']')));
}

TEST(Manifest, a_text_that_is_not_utf8_is_refused_before_it_is_written) {
  Manifest manifest = example();
  manifest.meta.config_text = "name = \"\xff\"";
  const auto text = encode_manifest(manifest);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace teson
