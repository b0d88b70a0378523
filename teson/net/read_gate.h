#pragma once

#include <cstdint>

#include "teson/base/error.h"
#include "teson/base/fd.h"

namespace teson::net {

/// A descriptor that is readable while another one is, but only while the gate is open: a loop that
/// watches it can be kept asleep without asking the loop. Not for use outside net/.
class ReadGate {
 public:
  /// Begins, open. The descriptor must outlive the gate, or reset() come first.
  Result<void> open(int fd);
  void reset() { epoll_.reset(); }
  int fd() const { return epoll_.get(); }

  // Threads: any, one at a time.
  void shut();
  void open();

 private:
  void wait_for(std::uint32_t events);

  Fd epoll_;
  int watched_ = -1;
};

}  // namespace teson::net
