// SPDX-License-Identifier: Apache-2.0
//
// What a running process costs, as the kernel counts it: proc_pid_status(5), proc_pid_stat(5) and
// /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).
#ifndef KIPT_TESTS_SUPPORT_PROCESS_COST_H_
#define KIPT_TESTS_SUPPORT_PROCESS_COST_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace kipt::testing {

struct ThreadCost {
  // Times the thread went to sleep of itself, which is as often as it was woken.
  int64_t wakeups = 0;
  // Time on a CPU, user and kernel, to the nanosecond.
  absl::Duration cpu;
};

// Time that the calling thread has had on a CPU. A bound on it holds on a busy machine, too.
absl::Duration CpuOfThisThread();
// Of all children that have ended, and theirs.
absl::Duration CpuOfChildren();

// Of each thread that lives; empty where the process has ended.
std::map<pid_t, ThreadCost> ThreadCosts(pid_t process);
// The sum over all threads of `after`, minus their cost in `before`.
ThreadCost Spent(const std::map<pid_t, ThreadCost>& before,
                 const std::map<pid_t, ThreadCost>& after);
// "1234: 7, 1235: 0": the wake-ups of each thread.
std::string WakeupsText(const std::map<pid_t, ThreadCost>& before,
                        const std::map<pid_t, ThreadCost>& after);

// Until no thread of it was woken for 300 ms. False where it does not come to rest in 20 seconds.
bool ComesToRest(pid_t process);

struct Memory {
  int64_t anonymous_kib = 0;  // RssAnon
  int64_t resident_kib = 0;   // VmRSS
  int64_t peak_kib = 0;       // VmHWM: the most that VmRSS has been
};
Memory MemoryOf(pid_t process);

// How many descriptors it has open.
int DescriptorsOf(pid_t process);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_PROCESS_COST_H_
