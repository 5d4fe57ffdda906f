// SPDX-License-Identifier: Apache-2.0
//
// A NodeAgent's reports as the program's JSON.
#ifndef KIPT_AGENT_CAPI_REPORTS_H_
#define KIPT_AGENT_CAPI_REPORTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "agent/node_agent.h"

namespace kipt::agent {

// Agent::CheckNamespace.
absl::Status CheckNamespace(NodeAgent& agent);

// SyncJson of the last round. FailedPrecondition: there was none.
absl::StatusOr<std::string> ReportJsonOf(NodeAgent& agent);
// SyncJson of a round that is done now. Errors are NodeAgent::Sync's.
absl::StatusOr<std::string> SyncJsonOf(NodeAgent& agent);
// PlanJson. Errors are Agent::Ask's and Backend::Read's.
absl::StatusOr<std::string> PlanJsonOf(NodeAgent& agent);
// AuditJson. Errors are Agent::Ask's.
absl::StatusOr<std::string> AuditJsonOf(NodeAgent& agent);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CAPI_REPORTS_H_
