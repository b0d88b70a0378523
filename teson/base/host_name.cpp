#include "teson/base/host_name.h"

#include <array>

#include <unistd.h>

namespace teson {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace teson
