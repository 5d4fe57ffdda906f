// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_PROBES_EPOLL_H_
#define KIPT_TESTS_SKEW_PROBES_EPOLL_H_

#include <cstdint>

#include "absl/status/status.h"

namespace kipt::skew {

// From now on `epoll` tells when `fd` has `events` (EPOLLIN, ...), by its number. The error is the
// kernel's.
absl::Status Watch(int epoll, int fd, uint32_t events);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_EPOLL_H_
