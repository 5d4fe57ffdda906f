// SPDX-License-Identifier: Apache-2.0
#include "agent/capi/reports.h"

#include <optional>

#include "absl/status/status.h"
#include "agent/agent.h"
#include "agent/audit/audit.h"
#include "agent/commands.h"
#include "agent/loop/reconciler.h"
#include "agent/node/node.h"
#include "agent/report/report.h"

namespace kipt::agent {

absl::Status CheckNamespace(NodeAgent& agent) { return AgentInside(agent).CheckNamespace(); }

absl::StatusOr<std::string> ReportJsonOf(NodeAgent& agent) {
  const Agent& inside = AgentInside(agent);
  const std::optional<LastRound>& last = inside.last_round();
  if (!last) return absl::FailedPreconditionError("no round has ended yet: dispatch first");
  Subject subject = SubjectOf(inside.node());
  subject.emulated_version = last->emulated_version;
  subject.input = last->input;
  return SyncJson(subject, last->report);
}

absl::StatusOr<std::string> SyncJsonOf(NodeAgent& agent) {
  if (absl::Status status = agent.Sync().status(); !status.ok()) return status;
  return ReportJsonOf(agent);
}

absl::StatusOr<std::string> PlanJsonOf(NodeAgent& agent) {
  absl::StatusOr<std::string> json = absl::UnknownError("");
  absl::Status status = AgentInside(agent).Ask([&](Node& node) { json = PlanReport(node); });
  return status.ok() ? json : status;
}

absl::StatusOr<std::string> AuditJsonOf(NodeAgent& agent) {
  std::string json;
  absl::Status status = AgentInside(agent).Ask([&](const Node& node) {
    const AuditOptions options = {
        .bits = node.config().bits, .mode = node.config().mode, .families = node.config().families};
    const NodeView view = SiftedNodeView(node.sources(), node.ReadCniConfigs(),
                                         {&options.change, 1}, {.marks = options.OurMarks()});
    json = AuditJson(Audit({&view, 1}, options));
  });
  if (!status.ok()) return status;
  return json;
}

}  // namespace kipt::agent
