// SPDX-License-Identifier: Apache-2.0
//
// System calls that fail on demand, for errors that a kernel hardly ever returns.
#ifndef KIPT_TESTS_SUPPORT_FAILING_CALL_H_
#define KIPT_TESTS_SUPPORT_FAILING_CALL_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace kipt::testing {

// One call of which the argument number `argument` (0 is the first) is `value`, or `any`.
struct FailingCall {
  uint32_t number;
  uint32_t argument;
  uint32_t value;
  uint32_t error;  // of errno(3)
  bool any = false;
};

// Where a filter finds the lower half of that argument.
constexpr uint32_t LowHalfOfArgument(uint32_t argument) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t) * argument +
                               (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4));
}

// Each such call of this thread fails from now on.
inline void FailFromNowOn(const FailingCall& call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, static_cast<uint8_t>(call.any ? 2 : 0), 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOfArgument(call.argument)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | call.error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

// Runs `body` on a thread of its own, on which each such call fails.
inline void WithFailingCall(const FailingCall& call, const std::function<void()>& body) {
  std::thread([&] {
    FailFromNowOn(call);
    body();
  }).join();
}

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::FailingCall;
using testing::WithFailingCall;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_FAILING_CALL_H_
