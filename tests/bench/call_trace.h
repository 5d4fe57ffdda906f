// SPDX-License-Identifier: Apache-2.0
//
// What something asks of the kernel, exactly: every system call of a process and all its
// descendants, by ptrace(2). Much slower than untraced, so never where time is taken.
#ifndef KIPT_TESTS_BENCH_CALL_TRACE_H_
#define KIPT_TESTS_BENCH_CALL_TRACE_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kipt::testing {

enum class Counted : uint8_t {
  // The calling process and what it starts.
  kAll,
  // Only what it starts: for a yardstick that consists of programs.
  kProgramsOnly,
};

struct CallCounts {
  int64_t system_calls = 0;
  // Successful execve().
  int64_t programs = 0;
  // Through sockets of AF_NETLINK.
  int64_t netlink_sent = 0;
  int64_t netlink_received = 0;
  // The option values of setsockopt() and getsockopt() by which legacy iptables swaps tables.
  int64_t xtables_bytes = 0;
  // Largest VmHWM among the programs, 0 where there were none.
  int64_t program_peak_kib = 0;
};

// Does `work` once, in a forked child of the calling thread: what it does to the kernel stays, what
// it does to this process's memory is lost.
absl::StatusOr<CallCounts> TraceCalls(const std::function<absl::Status()>& work, Counted counted);

struct AllocationCounts {
  uint64_t count = 0;
  uint64_t bytes = 0;
};

// The same for malloc() and its kin. kAll counts the calling process and none of what it starts:
// programs that our own library starts get a clean environment, without LD_PRELOAD.
absl::StatusOr<AllocationCounts> CountAllocations(const std::function<absl::Status()>& work,
                                                  Counted counted);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_CALL_TRACE_H_
