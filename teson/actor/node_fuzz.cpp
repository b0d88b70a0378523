// What a process makes of the messages of another: the first byte is the kind, the rest the payload.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "teson/actor/behaviour.h"
#include "teson/actor/node.h"
#include "teson/net/channel.h"

namespace {

using namespace teson;
using namespace teson::actor;
using namespace teson::actor::detail;

class Echo {
 public:
  std::string say(const std::string& text) { return text; }
  using endpoints = Endpoints<&Echo::say>;
};

/// Inputs to one node: each spawn leaves an actor in it.
constexpr int inputs_max = 256;

struct Fixture {
  Fixture() {
    node.host(node.next_actor_id(), "echo",
              []() -> Result<std::unique_ptr<Behaviour>> {
                return std::make_unique<TypedBehaviour<Echo>>(std::make_unique<Echo>());
              },
              {});
  }
  ~Fixture() { node.close(); }
  Node node{0, 0, 1, {}, {}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Fixture> fixture;
  static int inputs = 0;
  if (!fixture || ++inputs % inputs_max == 0) fixture = std::make_unique<Fixture>();
  if (size == 0) return 0;
  net::Message message{.kind = data[0], .payload = net::Buffer(size - 1)};
  if (size > 1) std::memcpy(message.payload.room().data(), data + 1, size - 1);
  fixture->node.receive(7, std::move(message));
  return 0;
}
