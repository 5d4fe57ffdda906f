// SPDX-License-Identifier: Apache-2.0
//
// What a network namespace and its interfaces need before packets of a test go through them.
#ifndef KIPT_TESTS_SKEW_NODE_NETWORK_SETTINGS_H_
#define KIPT_TESTS_SKEW_NODE_NETWORK_SETTINGS_H_

#include <string>

#include "absl/status/status.h"
#include "tests/support/netns.h"

namespace kipt::skew {

// Gives the calling thread's network namespace, which has no interfaces yet but lo, what packets of
// a test need of it whatever the machine's own settings are: both families on, addresses usable at
// once, no source filter, no limit on ICMP errors. `forwards`: it is a router.
absl::Status SetSysctls(bool forwards);

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

#endif  // KIPT_TESTS_SKEW_NODE_NETWORK_SETTINGS_H_
