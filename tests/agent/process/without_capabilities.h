// SPDX-License-Identifier: Apache-2.0
//
// Runs code without the capabilities that override permissions.
#ifndef KIPT_TESTS_AGENT_PROCESS_WITHOUT_CAPABILITIES_H_
#define KIPT_TESTS_AGENT_PROCESS_WITHOUT_CAPABILITIES_H_

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace kipt::testing {

// Runs `body` on a thread of its own that, like any user, needs permissions.
inline void WithoutCapabilities(const std::function<void()>& body) {
  std::thread([&] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    body();
  }).join();
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_AGENT_PROCESS_WITHOUT_CAPABILITIES_H_
