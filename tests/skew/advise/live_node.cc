// SPDX-License-Identifier: Apache-2.0
//
// LookAtNode of advise.h.
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "agent/audit/audit.h"
#include "agent/detect/host_files.h"
#include "agent/detect/mode_evidence.h"
#include "agent/process/command.h"
#include "tests/skew/advise/advise.h"
#include "tests/skew/advise/live_facts.h"

namespace kipt::skew {

absl::StatusOr<LiveNode> LookAtNode(const UpgradePlan& plan, const LiveSources& where) {
  const std::unique_ptr<agent::CommandRunner> runner = agent::NewCommandRunner();
  const agent::ModeSources sources = agent::SystemModeSources(where.host_root, runner.get());
  const agent::NodeView view = agent::GatherNodeView(
      sources, agent::ReadNodeCniConfigs(sources.host_root, where.cni_conf_dirs));
  if (view.surveys.empty() && !view.problems.empty()) {
    const std::string& why = view.problems.front();
    const bool permission =
        absl::StrContains(why, "CAP_") || absl::StrContains(why, "not permitted");
    return permission ? absl::PermissionDeniedError(why) : absl::UnavailableError(why);
  }
  return LiveFacts(view, plan);
}

}  // namespace kipt::skew
