// SPDX-License-Identifier: Apache-2.0
//
// What a change depends on beyond rules: kernel, modules, counters, IPVS, files of the host. Files
// and netlink only; nothing is run and no module is loaded.
#ifndef KIPT_AGENT_AUDIT_CHANGE_FACTS_H_
#define KIPT_AGENT_AUDIT_CHANGE_FACTS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/node_view.h"

namespace kipt::agent {

// Notes in `view` that `what` was not read.
void AddProblem(NodeView& view, absl::string_view what, const absl::Status& status);

// Rules with chains of Kubernetes in files that are loaded at boot, into `view.facts`.
void ReadBootRules(const class NodeFiles& node, NodeView& view);

// Fills `view.facts` with what any of `changes` depends on, for the calling thread's namespace. Its
// surveys are there already.
void GatherChangeFacts(const ModeSources& sources, absl::Span<const NodeChange> changes,
                       NodeView& view);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_CHANGE_FACTS_H_
