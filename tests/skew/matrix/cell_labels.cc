// SPDX-License-Identifier: Apache-2.0
//
// What CellRun does on the path of ConnLabelMarking.
#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/matrix/cell_run.h"
#include "tests/skew/matrix/judge.h"

namespace kipt::skew {

absl::Status CellRun::SetLabelGate(bool on) {
  return Step(on ? "ConnLabelMarking is turned on" : "ConnLabelMarking is turned off",
              [&](Done done) {
                label_gate_ = on;
                AgentActsByItself();
                AgentRetiresWhatItMay();
                done.Take(agent_->SetConnLabels(on));
              });
}

absl::Status CellRun::LabelUserAdds() {
  return Step(
      "another program sends packets to KUBELET-MARK-DROP and KUBELET-MARK-MASQ", [&](Done done) {
        for (FamilyFacts& facts : facts_) skew::LabelUserAdds(facts);
        done.Take(AddUserOfLabels(
            {mode_, ""}, {kLabelDropPort, kLabelDropPort + 1, kLabelMasqPort, kLabelMasqPort + 1}));
      });
}

absl::Status CellRun::LabelUserLeaves() {
  return Step("it removes its rules", [&](Done done) {
    for (FamilyFacts& facts : facts_) skew::LabelUserLeaves(facts);
    done.Take(RemoveUserOfLabels({mode_, ""}));
  });
}

absl::Status CellRun::RestartAgent() {
  return Step("the agent restarts", [&](Done done) {
    done.Take(agent_->Stop());
    StartKubelet(kubelet_version_, done);
  });
}

void CellRun::JudgeLabelChains(StepReport& step) const {
  const absl::string_view rules = step.rules;
  const size_t ipv6 = rules.find("# IPv6");
  const std::array<absl::string_view, 2> saves = {rules.substr(0, ipv6), rules.substr(ipv6)};
  for (size_t family = 0; family < saves.size(); ++family) {
    const std::string wrong = LabelChainsComplaint(saves[family], facts_[family].label_chains);
    if (wrong.empty()) continue;
    Done{step}.Take({.ok = false, .error = absl::StrCat(family == 0 ? "IPv4: " : "IPv6: ", wrong)});
  }
}

}  // namespace kipt::skew
