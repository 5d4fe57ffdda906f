// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/own_process.h
//
// This process itself: its standard descriptors, its heap, and what it uses.
#ifndef KIPT_AGENT_PROCESS_OWN_PROCESS_H_
#define KIPT_AGENT_PROCESS_OWN_PROCESS_H_

#include <optional>
#include <string>

namespace kipt::agent {

// Opens /dev/null on each of the descriptors 0 to 2 that is closed, so that no socket gets their
// number and receives what is printed. Reading or writing there still fails: output is never lost
// unnoticed. Call it before the program opens anything.
void OccupyStandardDescriptors();

// Flushes std::cout. Returns `exit_code` where everything was written; else prints an error and
// returns 1.
int FinishOutput(int exit_code);

// Checking all rules of a node with 10,000 services takes up to 60 MiB for a second. glibc would
// keep most of that for the next check, ten minutes later (malloc(3), mallopt(3)).
//
// Of the process, before it has threads: large blocks always go back to the kernel when they are
// freed, and threads that come and go have no heaps of their own, of which only the end ever would.
void KeepHeapSmall();

// All free pages go back to the kernel; takes some milliseconds where there are tens of MiB of
// them, else microseconds.
void GiveBackFreePages();

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

#endif  // KIPT_AGENT_PROCESS_OWN_PROCESS_H_
