#include "teson/data/builtin.h"

#include <array>
#include <string>

#include <fmt/format.h>

#include "teson/base/random.h"

namespace teson::data {
namespace {

constexpr std::uint64_t kVersion = 1;  // changes whenever the text does
constexpr std::uint64_t kStories = 640;

using Words = std::array<std::string_view, 8>;
constexpr Words kNames = {"Ana", "Brais", "Carme", "Duarte", "Elvira", "Fiz", "Iria", "Xoan"};
constexpr Words kTrades = {"baker",   "sailor", "weaver", "miller",
                           "teacher", "smith",  "farmer", "piper"};
constexpr Words kThings = {"lamp", "rope", "basket", "key", "bell", "letter", "map", "coat"};
constexpr Words kPlaces = {"harbour", "mill",   "market",     "bridge",
                           "chapel",  "forest", "lighthouse", "square"};
constexpr Words kQualities = {"old", "small", "heavy", "bright", "broken", "green", "wet", "quiet"};
constexpr Words kMoves = {"walked", "ran", "went", "hurried", "climbed", "rode", "came", "crept"};
constexpr Words kTimes = {"In the morning", "At noon", "In the evening", "At night",
                          "The next day",   "Later",   "Before dawn",    "After the rain"};

std::string_view pick(CounterRandom& random, const Words& words) {
  return words[random.below(words.size())];
}

std::string sentence(CounterRandom& random, std::string_view name, std::string_view friend_name,
                     std::string_view thing) {
  switch (random.below(6)) {
    case 0:
      return fmt::format("{} {} {} to the {}.", pick(random, kTimes), name, pick(random, kMoves),
                         pick(random, kPlaces));
    case 1:
      return fmt::format("{} looked for the {} near the {} {}.", name, thing,
                         pick(random, kQualities), pick(random, kPlaces));
    case 2:
      return fmt::format("\"Have you seen my {}?\" asked {}. \"No,\" said {}.", thing, name,
                         friend_name);
    case 3:
      return fmt::format("{} and {} {} together to the {}.", name, friend_name,
                         pick(random, kMoves), pick(random, kPlaces));
    case 4:
      return fmt::format("The {} was {}, but the {} was not there.", pick(random, kPlaces),
                         pick(random, kQualities), thing);
    default:
      return fmt::format("{} {} thought about the {} {}.", pick(random, kTimes), name,
                         pick(random, kQualities), thing);
  }
}

std::string story(std::uint64_t number) {
  CounterRandom random({kVersion, number});
  const std::string_view name = pick(random, kNames);
  std::string_view friend_name = pick(random, kNames);
  while (friend_name == name)
    friend_name = pick(random, kNames);
  const std::string_view thing = pick(random, kThings);
  const std::string_view trade = pick(random, kTrades);
  std::string text =
      fmt::format("{} the {} had lost a {} {}.", name, trade, pick(random, kQualities), thing);
  const std::uint64_t sentences = 3 + random.below(5);
  for (std::uint64_t i = 0; i < sentences; ++i)
    text += " " + sentence(random, name, friend_name, thing);
  text += fmt::format("\n{} found the {} at the {} and gave it back to {} the {}.", friend_name,
                      thing, pick(random, kPlaces), name, trade);
  return text;
}

}  // namespace

Source builtin_source() {
  return {.path = std::string(kBuiltinTiny), .bytes = kVersion, .modified_ns = 0};
}

Result<void> builtin_documents(const std::function<Result<void>(std::string_view)>& take) {
  for (std::uint64_t number = 0; number < kStories; ++number)
    TESON_TRY_VOID(take(story(number)));
  return {};
}

}  // namespace teson::data
