// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_backend.h
//
// The iptables-legacy backend: runs iptables-legacy-save to read and iptables-legacy-restore
// --noflush to write, once per family and direction at most, in the order mangle, filter, nat, so
// that a packet is never marked for a drop that is not there yet.
//
// iptables-legacy has no generation. A Snapshot's generation is a number that this backend gives to
// what iptables-legacy-save printed, counters aside: it names a content, so that one that comes
// back gets its number back. Before a write the families that it changes are read again and
// compared.
//
// With iptables 1.8.7 and later our own flock on xtables.lock is held around the second look and
// the write, while the children lock a file of their own (XTABLES_LOCKFILE), so nothing that takes
// the lock moves in between. Before 1.6.2 iptables-restore takes no lock, and ours is enough. The
// versions between these take the lock and cannot be given another: there a window of milliseconds
// is left between the second look and the write, in which another program's rule is not seen.
//
// The two families are two programs and two writes: all is checked before the first of them, but
// the second can still fail when the first is done. The message says what happened to each.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_

#include <cstddef>
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
  // Where the programs are looked for, in order; the first that has one wins. Looked for once.
  std::vector<std::string> directories = {"/usr/local/sbin", "/usr/sbin", "/sbin",
                                          "/usr/local/bin",  "/usr/bin",  "/bin"};
  // The lock of every program that uses iptables-legacy.
  std::string lock_path = "/run/xtables.lock";
  // How long to wait for it.
  absl::Duration lock_wait = absl::Seconds(5);
  // The tables that exist in the calling thread's namespace, "%s" being "ip" or "ip6". (/proc/net
  // is the main thread's.) A table that is not listed is not looked at: looking would create it.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  // The matches that the kernel has loaded, likewise.
  std::string match_names_path = "/proc/thread-self/net/%s_tables_matches";
  // Not there where IPv6 is off by the kernel's command line. What ip6 tables there are
  // (before 5.15 they come with the modules, unasked) then hold nothing, no program can read or
  // write them, and no packet meets them: they are read as none.
  std::string if_inet6_path = "/proc/thread-self/net/if_inet6";
  // Names of connections' labels, for people; iptables-save prints them. Read
  // where a label is printed. Not there as a rule.
  std::string label_names_path = "/etc/xtables/connlabel.conf";
  absl::Duration command_deadline = absl::Seconds(60);
  // Bytes of one family's rules.
  size_t output_limit = size_t{256} << 20;
  // Of proc_pid_status(5): shows whether a capability is missing.
  std::string thread_status_path = "/proc/thread-self/status";
  // Told, for a metric, how long the lock was waited for, each time that we asked for it, whether
  // we got it or not; on the thread that calls Apply. With an iptables that cannot be kept from
  // taking the lock itself (see above), the wait is unknown, and it is not called. May be empty.
  std::function<void(absl::Duration)> lock_waited = {};
};

// Both families, for the calling thread's network namespace. The programs run in the namespace of
// the thread that calls, so Read, TakeSurvey and Apply refuse (FailedPrecondition) to be called
// from a thread in another one. `runner` must outlive the backend.
//
// NotFound: the programs of IPv4 are not installed, with where they were looked for. (Without those
// of IPv6, Read and Apply of IPv6 return NotFound once IPv6 tables exist or are wanted.)
//
// Read and TakeSurvey take the rules' counters along. ReadNativeTable always answers that there is
// no such table, at the generation of the last Read or survey, 0 before the first.
//
// Read, TakeSurvey and Apply return, in addition to netlink/backend.h: Unavailable where a
// program reported a lock or a resource it did not get (it was tried again for as long as the lock
// is waited for), or was killed; DeadlineExceeded where the lock was not free in time, or a program
// did not end; ResourceExhausted and InvalidArgument where iptables-legacy-save printed too much,
// or what it never prints.
//
// Where Apply was refused because the match that rules about connection labels need is missing, its
// error has netlink::MissingExtension.
//
// Watch does the same in both WatchModes, and costs other writers nothing in either: what it does
// and what it does not see is in agent/xtables/iptables_legacy_parts.h. It returns
// FailedPrecondition, too, where the calling thread is in another namespace.
absl::StatusOr<std::unique_ptr<netlink::Backend>> NewIptablesLegacyBackend(
    CommandRunner* runner, IptablesLegacyOptions options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_BACKEND_H_
