// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/process_usage.h
//
// What this process uses, as the kernel counts it.
#ifndef KIPT_AGENT_ENDPOINTS_PROCESS_USAGE_H_
#define KIPT_AGENT_ENDPOINTS_PROCESS_USAGE_H_

#include <optional>
#include <string>

namespace kipt::agent {

struct ProcessUsage {
  // Since the epoch; as exact as a clock tick, 10 ms mostly.
  double start_time_seconds = 0;
  // Of all threads, user and system.
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double open_fds = 0;
};

// Reads PROC/self/stat, PROC/self/fd and PROC/stat (proc(5)). Empty where one of them cannot be
// read: a /proc that is not mounted, or belongs to another PID namespace.
std::optional<ProcessUsage> ReadProcessUsage(const std::string& proc = "/proc");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_PROCESS_USAGE_H_
