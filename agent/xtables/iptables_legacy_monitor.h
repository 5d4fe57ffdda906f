// SPDX-License-Identifier: Apache-2.0
//
// The Monitor of the iptables-legacy backend. The kernel does not report changes of these tables,
// but programs that change them use xtables.lock (xtables_lock_watch.h, which says what is not
// seen: a caller that must not miss that checks from time to time). Readers and other namespaces
// use it too, so the tables are then compared with those of the last time. The kernel returns their
// rules in microseconds (getsockopt(2), linux/netfilter_ipv4/ip_tables.h); nothing is decoded,
// changed or created. Not installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The hash of what IPT_SO_GET_ENTRIES gave, with all counters taken for 0.
//
// DataLoss: that is no row of whole rules.
absl::StatusOr<size_t> HashEntries(netlink::Family family, std::string entries);

// Watches the tables mangle, nat and filter of both families, in the calling thread's network
// namespace, which it keeps alive. `lock_path` and `table_names_path` as in IptablesLegacyOptions.
//
// Drain counts 1 if the tables differ from those of the last time. A table of more than 256 KiB is
// not read and may always differ: then any use of the lock counts, readers' and other namespaces'
// included. Our own writes count like any other's. No writer is named.
//
// Errors, also of Drain: NotFound: neither the lock file nor its directory exists.
// PermissionDenied: the lock file cannot be read; CAP_NET_RAW or CAP_NET_ADMIN is missing; not
// uid 0 of the namespace. ResourceExhausted: no descriptors, or too many inotify instances or
// watches. FailedPrecondition: the first tables of a family came to be, and this thread, which is
// in another namespace, cannot open their list. DataLoss as HashEntries.
absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
