// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/epoll.h"

#include <sys/epoll.h>

#include <cerrno>

namespace kipt::skew {

absl::Status Watch(int epoll, int fd, uint32_t events) {
  epoll_event interest = {};
  interest.events = events;
  interest.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

}  // namespace kipt::skew
