// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_NODE_SYSCTLS_H_
#define KIPT_TESTS_SKEW_NODE_SYSCTLS_H_

#include "absl/status/status.h"

namespace kipt::skew {

// Gives the calling thread's network namespace, which has no interfaces yet but lo, what packets of
// a test need of it whatever the machine's own settings are: both families on, addresses usable at
// once, no source filter, no limit on ICMP errors. `forwards`: it is a router.
absl::Status SetSysctls(bool forwards);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_NODE_SYSCTLS_H_
