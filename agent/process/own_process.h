// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/own_process.h
//
// This process itself: its standard descriptors, its heap, what it uses, and what it says of itself
// to the service manager that started it.
#ifndef KIPT_AGENT_PROCESS_OWN_PROCESS_H_
#define KIPT_AGENT_PROCESS_OWN_PROCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/process/files.h"

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

// Tells the service manager how this process is (sd_notify(3), Type=notify). The watchdog is the
// event loop's.
//
// Sends to $NOTIFY_SOCKET, and does nothing where that is not set. What cannot be delivered is
// lost: nobody could do anything about it but who is not listening. The variable stays in this
// process' environment; the programs that are run get an environment of their own (command.h), so
// that none of them can speak in our name.
//
// Safe for use by several threads at once.
class ServiceManager {
 public:
  // Started, or done with the reload that was announced.
  void Ready() const;
  // For people who look. `text` may be a stranger's, and is escaped (featuregates/go_text.h): a
  // line break would begin a message of its own.
  void Status(absl::string_view text) const;
  // A reload begins now; Ready() ends it.
  void Reloading() const;
  // Ends soon, of its own will.
  void Stopping() const;
};

// The sockets that the service manager opened for this process and holds open while it does not run
// (sd_listen_fds(3), a .socket unit of systemd). Empty where there are none, and at the second
// call. Changes the environment: call it before there are other threads.
std::vector<OwnedFd> TakePassedSockets();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_OWN_PROCESS_H_
