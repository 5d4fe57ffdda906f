// SPDX-License-Identifier: Apache-2.0
//
// File: tests/skew/node/interface_state.h
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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_NODE_INTERFACE_STATE_H_
