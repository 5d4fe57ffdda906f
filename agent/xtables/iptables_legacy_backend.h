// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_backend.h
//
// The iptables-legacy backend: runs iptables-legacy-save to read and iptables-legacy-restore
// --noflush to write, once per family and direction at most, in the order mangle, filter, nat, so
// that a packet is never marked for a drop that is not there yet.
//
// iptables-legacy has no generation. A Snapshot's generation is a number that this backend gives to
// what iptables-legacy-save printed, counters aside. Before a write, what it changes is read again
// and compared: the one table where there is only one, else all tables of the family.
//
// With iptables 1.8.7 and later the backend holds xtables.lock during that reading and the write,
// while the programs lock a file of their own (XTABLES_LOCKFILE), so no program that takes the lock
// writes in between. Before 1.6.2 iptables-restore takes no lock, and ours is enough. The versions
// between these take the lock and cannot be given another: what another program writes in the
// milliseconds between the reading and the write is not seen.
//
// The two families are two programs and two writes: all is checked before the first of them, but
// the second can still fail when the first is done. The message says what happened to each.
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
  // The lock of every program that uses iptables-legacy, and how long to wait for it.
  std::string lock_path = "/run/xtables.lock";
  absl::Duration lock_wait = absl::Seconds(5);
  // The tables that exist in the calling thread's namespace, "%s" being "ip" or "ip6". (/proc/net
  // is the main thread's.) A table that is not listed is not read: reading would create it.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  // The matches that the kernel has loaded, likewise.
  std::string match_names_path = "/proc/thread-self/net/%s_tables_matches";
  // Missing where the kernel's command line turns IPv6 off. Tables of IPv6 may exist then (before
  // 5.15 they come with the modules), but no program can read them and no packet comes to them:
  // they count as missing.
  std::string if_inet6_path = "/proc/thread-self/net/if_inet6";
  // Names of connection labels, which iptables-save prints. Usually there is no such file.
  std::string label_names_path = "/etc/xtables/connlabel.conf";
  absl::Duration command_deadline = absl::Seconds(60);
  // As in proc_pid_status(5): shows whether a capability is missing.
  std::string thread_status_path = "/proc/thread-self/status";
  // For a metric: called with the time that each request for the lock waited, whether it got the
  // lock or not, on the thread that calls Apply. Not called where iptables-restore takes the lock
  // itself (see above). May be empty.
  std::function<void(absl::Duration)> lock_waited = {};
};

// Both families, for the calling thread's network namespace. The programs run in the namespace of
// the thread that calls, so Read, TakeSurvey, Apply and Watch return FailedPrecondition to a thread
// in another one. `runner` must outlive the backend.
//
// NotFound: the programs of IPv4 are not installed; the message lists the directories. (Without
// those of IPv6, Read and Apply of IPv6 return NotFound once IPv6 tables exist or are to be made.)
//
// Read and TakeSurvey include the rules' counters. ReadNativeTable always returns that there is no
// such table, at the generation of the last Read or survey, 0 before the first.
//
// Read, TakeSurvey and Apply return, in addition to netlink/backend.h: Unavailable where a
// program reported a lock or a resource it did not get (it was tried again for as long as the lock
// is waited for), or was killed; DeadlineExceeded where the lock was not free in time, or a program
// did not end; ResourceExhausted and InvalidArgument where iptables-legacy-save printed too much,
// or what it never prints. Where Apply failed because the match of rules about connection labels is
// missing, its error has netlink::MissingExtension.
//
// Watch does the same in both WatchModes and costs other writers nothing; its limits are in
// agent/xtables/iptables_legacy_monitor.h.
absl::StatusOr<std::unique_ptr<netlink::Backend>> NewIptablesLegacyBackend(
    CommandRunner* runner, IptablesLegacyOptions options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_
