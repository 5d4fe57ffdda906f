// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/agent_state.h"

#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// In the order of the enumeration.
constexpr PhaseRow kPhases[] = {
    {FamilyPhase::kPending, "pending", "pending", false, absl::LogSeverity::kInfo},
    {FamilyPhase::kInPlace, "in place", "inPlace", true, absl::LogSeverity::kInfo},
    {FamilyPhase::kDegraded, "degraded", "degraded", true, absl::LogSeverity::kWarning},
    {FamilyPhase::kObserved, "observed", "observed", true, absl::LogSeverity::kInfo},
    {FamilyPhase::kFailed, "failed", "failed", false, absl::LogSeverity::kError},
};

}  // namespace

const PhaseRow& RowOf(FamilyPhase phase) { return kPhases[static_cast<size_t>(phase)]; }

std::string NotReadyBecause(const FamilyState& family) {
  if (RowOf(family.phase).ready) return "";
  if (!family.reason.empty()) return family.reason;
  return family.phase == FamilyPhase::kFailed ? "failed" : "the first attempt has not ended yet";
}

std::string ExposedBecause(const AgentState& state) {
  if (state.route_localnet.empty() || state.martian_protection ||
      !state.martians_dropped_elsewhere.empty()) {
    return "";
  }
  return absl::StrCat(ToString(state.route_localnet),
                      " and no rule keeps neighbours from 127.0.0.1 (CVE-2020-8558)");
}

bool IsReady(const AgentState& state) {
  return state.must_restart.empty() && ExposedBecause(state).empty() && !state.families.empty() &&
         absl::c_all_of(state.families,
                        [](const FamilyState& family) { return RowOf(family.phase).ready; });
}

std::string StatusLine(const AgentState& state, absl::Span<const std::string> problems) {
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
  for (const std::string& problem : problems) add(problem, "");
  if (line.empty()) return state.observing ? "in place, and observed only" : "in place";
  return Printable(line);
}

}  // namespace kipt::agent
