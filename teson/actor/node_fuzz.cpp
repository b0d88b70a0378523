// What a process makes of the messages of another. The first byte: the kind in 6 bits, whether the process that reads is the owner or another, and
// whether the message is from, or for, a third one. The rest is the payload.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "teson/actor/behaviour.h"
#include "teson/actor/node.h"
#include "teson/base/check.h"
#include "teson/base/log.h"
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
  explicit Fixture(std::uint64_t self) : node(self, 0, 1, {}, {}) {
    node.host(node.next_actor_id(), "echo",
              []() -> Result<std::unique_ptr<Behaviour>> {
                return std::make_unique<TypedBehaviour<Echo>>(std::make_unique<Echo>());
              },
              {});
  }
  ~Fixture() { node.close(); }
  Node node;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Of each damaged message it would warn.
  static const bool quiet = (log_start("fuzz", LogLevel::error), true);
  TESON_CHECK(quiet);
  static std::unique_ptr<Fixture> fixtures[2];
  static int inputs = 0;
  if (!fixtures[0] || ++inputs % inputs_max == 0) {
    fixtures[0] = std::make_unique<Fixture>(owner_proc);
    fixtures[1] = std::make_unique<Fixture>(3);
  }
  if (size == 0) return 0;
  Fixture& fixture = *fixtures[data[0] >> 6 & 1];
  net::Message message{.kind = static_cast<std::uint16_t>(data[0] & 63),
                       .epoch = static_cast<std::uint64_t>(data[0] >> 7),
                       .payload = net::Buffer(size - 1)};
  if (size > 1) std::memcpy(message.payload.room().data(), data + 1, size - 1);
  fixture.node.receive(7, std::move(message));
  return 0;
}
