// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/privileges.h
//
// Gives up, for good, every capability (capabilities(7)) that the agent does not need.
#ifndef KIPT_AGENT_PROCESS_PRIVILEGES_H_
#define KIPT_AGENT_PROCESS_PRIVILEGES_H_

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kipt::agent {

// Leaves the calling thread no capability but CAP_NET_ADMIN, which nf_tables wants of who looks as
// of who writes, and with `keep_net_raw` CAP_NET_RAW, without which iptables-legacy cannot open its
// socket. What is kept is permitted and effective; with `keep_net_raw` also inheritable and
// ambient, so that the programs have it, whoever runs them. Then sets no_new_privs
// (PR_SET_NO_NEW_PRIVS), so that no program that is run can have more.
//
// Capabilities are each thread's own: to be called before there are other threads. Nothing that
// needs another privilege (setns, a port below 1024) can be done afterwards.
//
// PermissionDenied: one that is to be kept is not there; the message says where it is given.
// FailedPrecondition: there are other threads. Internal: the kernel did not do as it was told; do
// not go on.
absl::Status DropCapabilities(bool keep_net_raw);

// As above, for who reads what it can: of its capabilities the calling thread keeps those in `most`
// (CAP_* of linux/capability.h), and none has to be there. `for_programs`: programs have them, too.
// FailedPrecondition and Internal as above.
absl::Status LimitCapabilities(absl::Span<const unsigned int> most, bool for_programs);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_PRIVILEGES_H_
