// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/mixed_modes.h
//
// A node may have rules in nft's tables and in legacy ones: both hooks run, one after the other.
// That is no error in itself; what matters is where they meet. Pure.
#ifndef KIPT_AGENT_AUDIT_MIXED_MODES_H_
#define KIPT_AGENT_AUDIT_MIXED_MODES_H_

#include <vector>

#include "absl/types/span.h"
#include "agent/audit/audit_finding.h"
#include "netlink/survey.h"

namespace kipt::agent {

// How the modes meet, in each family: kTwoHints, kSameChainInBothModes, kShadowedByOtherMode or
// kBothModesInUse; details are chains or rules, "nat/KUBE-SERVICES", "legacy filter/INPUT has the
// policy DROP". Worst first. Nothing where fewer than two surveys have rules in iptables' tables.
// Only one survey of each mode is read.
//
// kInfo: rules in both modes that do not meet. kWarning: one mode decides what a jump of ours in
// the other was to decide; or a chain of Kubernetes' that is in use in one mode stands unused, but
// not empty, in the other. kError: such a chain in use in both; or both modes have
// KUBE-IPTABLES-HINT, so that others cannot tell which mode the node uses.
std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_MIXED_MODES_H_
