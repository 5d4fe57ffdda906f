// SPDX-License-Identifier: Apache-2.0
//
// What CellRun does on the path of ConnLabelMarking.
#include <array>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/matrix/cell_run.h"

namespace kipt::skew {
namespace {

constexpr std::array<absl::string_view, 4> kLabelChains = {
    "KUBELET-FIREWALL", "KUBELET-MARK-DROP", "KUBELET-MARK-MASQ", "KUBELET-POSTROUTING"};

// "" where `save` has all of them, or nothing of any, as `all` says.
std::string WhatIsWrong(absl::string_view save, bool all) {
  for (const absl::string_view chain : kLabelChains) {
    const bool stands = absl::StrContains(save, absl::StrCat(":", chain, " "));
    const bool named = stands || absl::StrContains(save, absl::StrCat(" -j ", chain));
    if (all && !stands) return absl::StrCat(chain, " does not stand");
    if (!all && named) return absl::StrCat(chain, " is still there");
  }
  return "";
}

}  // namespace

absl::Status CellRun::SetLabelGate(bool on) {
  return Step(on ? "ConnLabelMarking is turned on" : "ConnLabelMarking is turned off",
              [&](Done done) {
                label_gate_ = on;
                AgentActsByItself();
                AgentRetiresWhatItMay();
                done.Take(agent_->SetConnLabels(on), nullptr);
              });
}

absl::Status CellRun::LabelUserAdds() {
  return Step("somebody leads packets to KUBELET-MARK-DROP and KUBELET-MARK-MASQ", [&](Done done) {
    bool all = true;
    for (FamilyFacts& facts : facts_) all = skew::LabelUserAdds(facts) && all;
    done.Take(AddUserOfLabels({mode_, ""}, {kLabelDropPort, kLabelDropPort + 1, kLabelMasqPort,
                                            kLabelMasqPort + 1}),
              all ? nullptr : "the chains of labels do not exist, so iptables refuses the rules");
  });
}

absl::Status CellRun::LabelUserLeaves() {
  return Step("they take their rules away", [&](Done done) {
    for (FamilyFacts& facts : facts_) skew::LabelUserLeaves(facts);
    done.Take(RemoveUserOfLabels({mode_, ""}), nullptr);
  });
}

absl::Status CellRun::RestartAgent() {
  return Step("the agent is started anew", [&](Done done) {
    done.Take(agent_->Stop(), nullptr);
    StartKubelet(kubelet_version_, done);
  });
}

void CellRun::JudgeLabelChains(StepReport& step) const {
  const absl::string_view rules = step.rules;
  const size_t ipv6 = rules.find("# IPv6");
  const std::array<absl::string_view, 2> saves = {rules.substr(0, ipv6), rules.substr(ipv6)};
  for (size_t family = 0; family < saves.size(); ++family) {
    const std::string wrong = WhatIsWrong(saves[family], facts_[family].label_chains);
    if (wrong.empty()) continue;
    Done{step}.Take({.ok = false, .error = absl::StrCat(family == 0 ? "IPv4: " : "IPv6: ", wrong)},
                    nullptr);
  }
}

}  // namespace kipt::skew
