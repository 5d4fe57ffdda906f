// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_monitor.h
//
// The Monitor of the iptables-legacy backend. The kernel does not report changes of these tables,
// but every program that changes them with iptables 1.6.2 or later opens xtables.lock before and
// closes it afterwards, and inotify(7) reports that. The kernel is then asked whether anything was
// changed in this network namespace: readers take the lock, too, and one lock serves all
// namespaces.
//
// Not seen: programs that take no lock or another one (an older iptables, a container with a /run
// of its own, a program that was given XTABLES_LOCKFILE), and a lock file that is mounted over the
// watched one later. A caller that must not miss these checks from time to time.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "netlink/backend.h"

namespace kipt::agent {

// For the calling thread's network namespace. `lock_path` and `table_names_path` as in
// IptablesLegacyOptions.
//
// Drain counts 1 where the rules, policies or tables differ from those of the last time, or where a
// table of more than kMostIptablesLegacyTableBytes may differ: it is not read, so any use of the
// lock counts, readers' and other namespaces' included, and the caller limits how often it looks.
// Our own writes count like anybody's. Nobody is named. Errors are
// IptablesLegacyTableReader::Read's, and those of the watches that have to be renewed, as here:
//
// NotFound: neither the lock file nor its directory exists. PermissionDenied: the lock file may not
// be read, or what IptablesLegacyTableReader says. ResourceExhausted: no descriptors, or too many
// inotify instances or watches.
absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
