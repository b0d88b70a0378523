// libFuzzer target: the decoder on any bytes, over one type that holds every construct.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "teson/base/check.h"
#include "teson/net/codec.h"

namespace {

enum class Kind : std::uint8_t { first, second, sixth = 5 };
struct Leaf {
  Kind kind = Kind::first;
  std::string text;
};
struct Root {
  std::vector<Leaf> leaves;
  std::map<std::uint8_t, std::vector<double>> table;
  std::optional<std::array<Leaf, 2>> pair;
  std::variant<bool, Leaf, std::vector<bool>> either;
  teson::Result<Leaf> result;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // What is accepted must be the one encoding of its value.
  if (const auto root = teson::net::decode<Root>(input))
    TESON_CHECK(teson::net::encode(*root).size() == size);
  return 0;
}
