// SPDX-License-Identifier: Apache-2.0
//
// The iptables-legacy backend: runs iptables-legacy-save to read and iptables-legacy-restore
// --noflush to write, at most once per family and direction, in PlanRestore's order.
//
// iptables-legacy has no generation. A Snapshot's generation is a number that this backend gives to
// what iptables-legacy-save printed, without counters. Before a write, what it changes is read
// again and compared: the one table if there is only one, else all tables of the family.
//
// With iptables 1.8.7 and later the backend holds xtables.lock during that reading and the write,
// while the programs lock a file of their own (XTABLES_LOCKFILE). To add, it reads nothing again if
// it read what it needs in the last 100 ms, and no program has used xtables.lock since: the write
// is then as close to that reading. Before 1.6.2 iptables-restore takes no lock, and ours is
// enough. The versions between lock xtables.lock themselves, so what another program writes in the
// milliseconds between the reading and the write is not seen.
//
// Each family is a write of its own: all is checked before the first, but the second can fail after
// the first is done. The message says what happened to each.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/command.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct IptablesLegacyOptions {
  // Searched for the programs, once and in order.
  std::vector<std::string> directories = {"/usr/local/sbin", "/usr/sbin", "/sbin",
                                          "/usr/local/bin",  "/usr/bin",  "/bin"};
  // The lock of all iptables-legacy programs, and how long to wait for it.
  std::string lock_path = "/run/xtables.lock";
  absl::Duration lock_wait = absl::Seconds(5);
  // The tables that exist in the calling thread's namespace, "%s" being "ip" or "ip6". A table that
  // is not listed is not read, which would create it.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  // The same list where iptables-legacy-save reads it, which prints nothing without it.
  std::string program_names_path = "/proc/net/%s_tables_names";
  // The matches that the kernel has loaded, likewise.
  std::string match_names_path = "/proc/thread-self/net/%s_tables_matches";
  // Missing if the kernel's command line turns IPv6 off. Then tables of IPv6 count as missing, even
  // if they exist (before 5.15): no program can read them, and no packet passes them.
  std::string if_inet6_path = "/proc/thread-self/net/if_inet6";
  // Names of connection labels, which iptables-save prints. Rarely exists.
  std::string label_names_path = "/etc/xtables/connlabel.conf";
  absl::Duration command_deadline = absl::Seconds(60);
  // As in proc_pid_status(5): shows whether a capability is missing.
  std::string thread_status_path = "/proc/thread-self/status";
  // For a metric: called with the time that each request for the lock waited, successful or not, on
  // the thread that calls Apply; not if iptables-restore takes the lock itself. May be empty.
  std::function<void(absl::Duration)> lock_waited = {};
};

// Both families, for the calling thread's network namespace. The programs run in the namespace of
// the thread that calls, so Read, TakeSurvey, Apply and Watch return FailedPrecondition to a thread
// in another one. `runner` must outlive the backend.
//
// NotFound: the programs of IPv4 are not installed; the message lists the directories. (Read and
// Apply return the same for IPv6, once its tables exist or are to be made.)
//
// Read and TakeSurvey include the rules' counters.
//
// Read, TakeSurvey and Apply return, in addition to netlink/backend.h: Unavailable if a program did
// not get its lock or a resource (and was tried again until `lock_wait` was over), or was killed;
// DeadlineExceeded if the lock was not free in time, or a program did not end; ResourceExhausted
// and InvalidArgument if iptables-legacy-save printed too much, or what it never prints. If Apply
// failed because the match of connection labels is missing, its error has
// netlink::MissingExtension.
//
// Watch does the same in both WatchModes and costs other writers nothing; its limits are in
// agent/xtables/iptables_legacy_monitor.h.
absl::StatusOr<std::unique_ptr<netlink::Backend>> NewIptablesLegacyBackend(
    CommandRunner* runner, IptablesLegacyOptions options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_
