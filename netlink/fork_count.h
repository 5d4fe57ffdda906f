// SPDX-License-Identifier: Apache-2.0
//
// Whether this process was forked from the one that made something: what the kernel keeps for a
// descriptor that both have is still the parent's.
#ifndef KIPT_NETLINK_FORK_COUNT_H_
#define KIPT_NETLINK_FORK_COUNT_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace kipt::netlink {

// How many forks, since the first call, this process comes from. Not its number, which a child in
// another PID namespace may share with its parent.
inline uint64_t ForkCount() {
  static std::atomic<uint64_t> count = 0;
  [[maybe_unused]] static const int watched =
      pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
  return count;
}

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_FORK_COUNT_H_
