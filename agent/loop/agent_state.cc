// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/agent_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

// What does not go away by our own work, and leaves `family` without what is promised.
const Finding* Blocker(const AgentState& state, netlink::Family family) {
  const auto found =
      std::find_if(state.findings.begin(), state.findings.end(), [family](const Finding& finding) {
        return finding.chain.family == family && !finding.mended &&
               (finding.condition == Condition::kShadowedJump ||
                SeverityOf(finding.condition) == Severity::kCritical);
      });
  return found == state.findings.end() ? nullptr : &*found;
}

}  // namespace

absl::string_view FamilyPhaseName(FamilyPhase phase) {
  switch (phase) {
    case FamilyPhase::kPending:
      return "pending";
    case FamilyPhase::kInPlace:
      return "in place";
    case FamilyPhase::kDegraded:
      return "degraded";
    case FamilyPhase::kObserved:
      return "observed";
    case FamilyPhase::kFailed:
      return "failed";
  }
  return "unknown";
}

std::string NotReadyBecause(const AgentState& state, const FamilyState& family) {
  switch (family.phase) {
    case FamilyPhase::kInPlace:
      return "";
    case FamilyPhase::kPending:
      return family.reason.empty() ? "the first attempt has not ended yet" : family.reason;
    case FamilyPhase::kObserved:
    case FamilyPhase::kDegraded: {
      const Finding* blocker = Blocker(state, family.family);
      if (blocker == nullptr) return "";
      return absl::StrCat(ConditionName(blocker->condition), ": ", blocker->message);
    }
    case FamilyPhase::kFailed:
      break;
  }
  return family.reason.empty() ? "failed" : family.reason;
}

std::string ExposedBecause(const AgentState& state) {
  if (state.route_localnet.empty() || state.martian_protection) return "";
  return absl::StrCat("route_localnet is 1 for ", absl::StrJoin(state.route_localnet, ", "),
                      " and no rule keeps neighbours from 127.0.0.1 (CVE-2020-8558)");
}

bool IsReady(const AgentState& state) {
  return state.must_restart.empty() && ExposedBecause(state).empty() && !state.families.empty() &&
         std::all_of(state.families.begin(), state.families.end(),
                     [&state](const FamilyState& family) {
                       return NotReadyBecause(state, family).empty();
                     });
}

std::string StatusLine(const AgentState& state) {
  std::string line;
  const auto add = [&line](absl::string_view subject, absl::string_view reason) {
    absl::StrAppend(&line, line.empty() ? "" : "; ", subject, reason.empty() ? "" : ": ", reason);
  };
  if (!state.must_restart.empty()) add("must restart", state.must_restart);
  for (const FamilyState& family : state.families) {
    if (family.phase == FamilyPhase::kInPlace) continue;
    add(absl::StrCat(netlink::FamilyName(family.family), " ", FamilyPhaseName(family.phase)),
        family.reason);
  }
  if (const std::string exposed = ExposedBecause(state); !exposed.empty()) {
    add("exposed", exposed);
  }
  if (!state.config_problem.empty()) add("configuration not reloaded", state.config_problem);
  if (!state.listen_problem.empty()) add(state.listen_problem, "");
  if (line.empty()) return state.observing ? "in place, and observed only" : "in place";
  return featuregates::Printable(line);
}

}  // namespace kipt::agent
