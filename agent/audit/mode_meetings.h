// SPDX-License-Identifier: Apache-2.0
//
// Nodes on which both nf_tables and iptables-legacy have rules.
#ifndef KIPT_AGENT_AUDIT_MODE_MEETINGS_H_
#define KIPT_AGENT_AUDIT_MODE_MEETINGS_H_

#include <vector>

#include "absl/types/span.h"
#include "agent/audit/finding.h"
#include "netlink/survey.h"

namespace kipt::agent {

// Where the rules of two iptables modes meet, in each family. The kernel runs the hooks of both,
// which is no error in itself. Reads the first survey of each mode; none without both.
//
// kInfo: both have rules that do not meet. kWarning: one mode decides before a jump of ours in the
// other; or a chain of Kubernetes' is used in one, and left over with rules in the other. kError:
// both use such a chain; or a program that reads the hint cannot determine the node's mode.
std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_MODE_MEETINGS_H_
