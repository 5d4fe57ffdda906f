// SPDX-License-Identifier: Apache-2.0
//
// One audit before every change, for a process that keeps running: gathered in bounded memory, and
// kept as what its endpoints, metrics and log show.
#ifndef KIPT_AGENT_AUDIT_NODE_AUDIT_H_
#define KIPT_AGENT_AUDIT_NODE_AUDIT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"

namespace kipt::agent {

struct NodeAudit {
  // Findings kept of a report; the others are only counted (AuditReport::more).
  static constexpr size_t kMostFindings = 100;
  // Entries of `series`.
  static constexpr size_t kMostSeries = 12;

  // When it ended. InfinitePast: there is none yet.
  absl::Time time = absl::InfinitePast();
  // In the order of NodeChange.
  std::vector<AuditReport> reports = {};
  // How many errors and warnings are not allowed, by the labels change, kind, severity, backend,
  // family, table, chain and owner. Errors come first; those for which there is no place are
  // counted by change and severity alone, as kind "Other".
  std::map<std::map<std::string, std::string>, double> series = {};
};

// What is kept of `reports`, one for each change, that were complete at `time`.
NodeAudit MakeNodeAudit(std::vector<AuditReport> reports, absl::Time time);

// Audits the calling thread's network namespace. `pause` as SiftOptions::pause.
//
// Aborted: other programs kept changing the rules. Errors of `pause`. What cannot be read is a
// finding.
absl::StatusOr<NodeAudit> AuditNode(const ModeSources& sources, const CniConfigs& cni,
                                    AuditOptions options,
                                    const std::function<absl::Status()>& pause);

// As `audit` prints it, once for each change.
std::string NodeAuditText(const NodeAudit& audit);
// {"time": "...", "audits": [as AuditJson, ...]}; the time is null where there is no audit yet.
std::string NodeAuditJson(const NodeAudit& audit);

// Errors and warnings that `after` has and `before` had not, and the other way round.
struct FindingNews {
  bool gone = false;
  AuditSeverity severity = AuditSeverity::kWarning;
  // "error ChainUser nft ip nat/KUBE-MARK-MASQ, before ownership-cleanup: rules of ... jump to ..."
  std::string text;

  bool operator==(const FindingNews&) const = default;
};
std::vector<FindingNews> NewsOf(const NodeAudit& before, const NodeAudit& after);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_NODE_AUDIT_H_
