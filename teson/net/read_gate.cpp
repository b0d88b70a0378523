#include "teson/net/read_gate.h"

#include <cerrno>

#include <sys/epoll.h>

#include "teson/base/check.h"

namespace teson::net {

Result<void> ReadGate::open(int fd) {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno("epoll for a channel", errno);
  watched_ = fd;
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
    return fail_errno("epoll for a channel", errno);
  return {};
}

void ReadGate::shut() {
  wait_for(0);
}

void ReadGate::open() {
  wait_for(EPOLLIN);
}

void ReadGate::wait_for(std::uint32_t events) {
  epoll_event event{.events = events, .data = {}};
  const int changed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, watched_, &event);
  TESON_CHECK(changed == 0, errno);
}

}  // namespace teson::net
