// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_NODE_INTERFACE_STATE_H_
#define KIPT_TESTS_SKEW_NODE_INTERFACE_STATE_H_

#include <string>

#include "absl/status/status.h"
#include "tests/support/netns.h"

namespace kipt::skew {

// The first side of a veth pair that comes up sends nothing until the kernel has, in its own time,
// noticed the carrier that the second one gave it.
//
// DeadlineExceeded: not in five seconds.
absl::Status WaitUntilRunning(const testing::Netns& netns, const std::string& interface);

// An IPv6 address takes packets once it has its local route, which a worker of the kernel adds some
// time after ip(8) has ended (addrconf_dad_completed() of net/ipv6/addrconf.c).
//
// DeadlineExceeded: not in five seconds.
absl::Status WaitUntilLocal(const testing::Netns& netns, const std::string& ipv6_address);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_NODE_INTERFACE_STATE_H_
