// SPDX-License-Identifier: Apache-2.0
//
// This process itself: its standard descriptors, heap, resource usage, privileges (system calls are
// in syscall_filter.h), and what it reports to its service manager.
#ifndef KIPT_AGENT_PROCESS_OWN_PROCESS_H_
#define KIPT_AGENT_PROCESS_OWN_PROCESS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Opens /dev/null on those of the descriptors 0 to 2 that are closed, so that no socket receives
// what is printed. Using them still fails. Call it before the program opens anything.
void OccupyStandardDescriptors();

// Flushes std::cout. Returns `exit_code`, or `unwritten` after an error message if something was
// not written. A reader of a pipe or socket that ended has read what it needs: no error.
int FinishOutput(int exit_code, int unwritten = 1);

// A descriptor whose reader may have stopped reading: a pipe, a terminal or systemd's socket. What
// cannot be written within 10 ms is dropped, for the process must go on. Safe for use by several
// threads at once.
class LossyOutput {
 public:
  explicit LossyOutput(int fd) : fd_(fd) {}

  // False: at least the end of `line` is dropped. The next line then begins with a line feed.
  bool Write(absl::string_view line);
  // How many lines were dropped since the start.
  uint64_t dropped() const { return dropped_; }

 private:
  size_t WriteStart(absl::string_view line);

  const int fd_;
  std::mutex mutex_;
  bool torn_ = false;
  std::atomic<uint64_t> dropped_ = 0;
};

// Returns large blocks to the kernel as soon as they are freed, and gives all threads one heap
// (mallopt(3)): glibc would keep most of the 60 MiB that a check of 10,000 services takes. Call it
// before there are other threads.
void KeepHeapSmall();

// Gives all free pages back to the kernel: some milliseconds for tens of MiB, else microseconds.
void GiveBackFreePages();

struct ProcessUsage {
  // Since the epoch, to a clock tick (mostly 10 ms).
  double start_time_seconds = 0;
  // All threads', user and system.
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double open_fds = 0;
};

// Empty if PROC is not mounted (proc(5)), or belongs to another PID namespace.
std::optional<ProcessUsage> ReadProcessUsage(const std::string& proc = "/proc");

// ---- privileges ----

// Whether this build has the run time of a sanitizer, which starts threads and makes system calls
// of its own, or of line coverage, which writes files at exit (KIPT_COVERAGE, from our preset).
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER) || \
    defined(ABSL_HAVE_MEMORY_SANITIZER) || defined(KIPT_COVERAGE)
inline constexpr bool kBuiltWithASanitizer = true;
#else
inline constexpr bool kBuiltWithASanitizer = false;
#endif

// Keeps only CAP_NET_ADMIN, which nf_tables requires even for reading, and with `keep_net_raw` also
// CAP_NET_RAW for iptables-legacy's socket; then programs keep both, under any user. Sets
// no_new_privs, so that no program gains more. Afterwards setns(2) and ports below 1024 fail.
//
// PermissionDenied: one of them is missing; the message says how to grant it. FailedPrecondition:
// there are other threads, which would keep theirs. Internal: the kernel refused; do not go on.
absl::Status DropCapabilities(bool keep_net_raw);

// The same for commands that only read: keeps those capabilities of `most` (CAP_* of
// linux/capability.h) that the calling thread has. `for_programs`: programs keep them, too.
absl::Status LimitCapabilities(absl::Span<const unsigned int> most, bool for_programs);

// Forbids the calling thread, and the threads and programs that it starts, to open files for
// writing (except /dev/null) and to make, rename or remove any: EACCES (landlock(7)). Open files
// stay writable. From Linux 6.12 on, they can send signals only to each other. Call it after
// DropCapabilities, before there are other threads.
//
// `may_be_made`: a file that may still be made empty, for iptables-legacy's lock, as may any next
// to it, because Landlock only knows directories. Empty: none.
//
// Every error leaves everything unchanged. Unimplemented: the kernel or the container has no
// Landlock, or this build writes files of its own. Internal: anything else.
absl::Status ForbidFileWrites(const std::string& may_be_made);

// ---- the service manager ----

// Sends one message of sd_notify(3) to $NOTIFY_SOCKET, but never waits, as libsystemd's does: false
// where the service manager has not read the message before. True also without one, and where
// it cannot be reached. Programs do not inherit the variable (command.h).
bool NotifyServiceManager(const std::string& message);

// Reports the state of this process (Type=notify). A message that would have to wait is sent by a
// later call. The event loop serves the watchdog. Not safe for use by several threads at once.
class ServiceManager {
 public:
  // Started, or done with the reload.
  void Ready();
  // For people. `text` is escaped: a line break in it would begin another message.
  void Status(absl::string_view text);
  // A reload begins; Ready() ends it.
  void Reloading();
  void Stopping();
  // Tries again.
  void NotifyRest();

 private:
  void Notify(std::string message);

  // The newest of each kind, in their order.
  std::vector<std::string> untold_;
};

// The sockets of a .socket unit (sd_listen_fds(3)), which stay open while this process is down;
// empty at the second call. Changes the environment: call it before there are other threads.
std::vector<OwnedFd> TakePassedSockets();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_OWN_PROCESS_H_
