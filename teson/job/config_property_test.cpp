#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "teson/job/config_keys.h"
#include "teson/job/nearest.h"

namespace teson::job {
namespace {

/// The recursive definition, for short words.
std::size_t distance_by_definition(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return std::max(a.size(), b.size());
  const std::string_view a1 = a.substr(0, a.size() - 1), b1 = b.substr(0, b.size() - 1);
  std::size_t best = std::min({distance_by_definition(a1, b) + 1, distance_by_definition(a, b1) + 1,
                               distance_by_definition(a1, b1) + (a.back() == b.back() ? 0 : 1)});
  if (a.size() > 1 && b.size() > 1 && a.back() == b[b.size() - 2] && b.back() == a[a.size() - 2]) {
    best = std::min(
        best, distance_by_definition(a.substr(0, a.size() - 2), b.substr(0, b.size() - 2)) + 1);
  }
  return best;
}

const auto kWords =
    rc::gen::resize(6, rc::gen::container<std::string>(rc::gen::inRange<char>('a', 'd')));

RC_GTEST_PROP(EditDistance, agrees_with_its_recursive_definition, ()) {
  const std::string a = *kWords, b = *kWords;
  RC_ASSERT(edit_distance(a, b) == distance_by_definition(a, b));
  RC_ASSERT(edit_distance(a, b) == edit_distance(b, a));
}

TEST(EditDistance, of_known_words) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("lnaes", "lanes"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

double random_real(const ValueLimits& limits) {
  const double part = *rc::gen::inRange<std::uint32_t>(1, 1u << 30) / static_cast<double>(1u << 30);
  return limits.low + (limits.high - limits.low) * part * part * part;
}

ConfigValue random_value(const ConfigKey& key) {
  if (key.optional && *rc::gen::arbitrary<bool>()) return {};
  switch (key.kind) {
    case ValueKind::boolean:
      return *rc::gen::arbitrary<bool>();
    case ValueKind::whole: {
      const std::int64_t width = key.limits.whole_high - key.limits.whole_low;
      return key.limits.whole_low + *rc::gen::inRange<std::int64_t>(0, width);
    }
    case ValueKind::real:
      return random_real(key.limits);
    case ValueKind::text:
      if (!key.choices.empty()) return *rc::gen::elementOf(key.choices);
      return "x" + *rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '~'));
    case ValueKind::list:
      return std::vector<std::string>{
          "é\"\\\n\t" + *rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '~'))};
  }
  return {};
}

RC_GTEST_PROP(Config, canonical_text_holds_every_value_to_the_bit, ()) {
  // Rules between keys would refuse most random configs, so keys are set one at a time onto a valid
  // one.
  const ConfigKey& key = *rc::gen::elementOf(config_keys());
  Config config;
  resolve(config);
  const ConfigValue value = random_value(key);
  RC_PRE(check_value(key, value));
  key.write(config, value);
  RC_PRE(bool(validate_config(config)));
  const auto again = parse_config(to_toml(config), "canonical");
  RC_ASSERT(bool(again));
  RC_ASSERT(key.read(*again) == value || key.name == "data.vocabulary");
  RC_ASSERT(to_toml(*again) == to_toml(config));
  RC_ASSERT(plan_hash(*again) == plan_hash(config));
}

RC_GTEST_PROP(Config, no_text_makes_the_reader_fail_otherwise_than_with_a_message, ()) {
  const auto text = *rc::gen::container<std::string>(
      rc::gen::elementOf(std::string("[]{}=\"'.,#\n\t batchlnes0123\xc3\xa9\xff")));
  const auto config = parse_config(text, "x");
  if (!config) RC_ASSERT(!config.error().message.empty());
}

}  // namespace
}  // namespace teson::job
