// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/statusz.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/config/settings.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

using featuregates::AppendLine;
using featuregates::Printable;

std::string UpText(absl::Duration up) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(up));
  return absl::StrFormat("%d hr %02d min %02d sec", seconds / 3600, seconds / 60 % 60,
                         seconds % 60);
}

void AppendFamilies(const AgentState& state, std::string& out) {
  out += "\nFamilies:\n";
  for (const FamilyState& family : state.families) {
    AppendLine(out, "  ", netlink::FamilyName(family.family), ": ", FamilyPhaseName(family.phase),
               " since ", TimeText(family.since), family.reason.empty() ? "" : ", ", family.reason);
    const std::string why = NotReadyBecause(state, family);
    if (!why.empty()) AppendLine(out, "    not ready: ", why);
  }
}

void AppendFindings(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nFindings: ", state.findings.size(), "\n");
  for (const Finding& finding : state.findings) {
    AppendLine(out, "  [", SeverityName(SeverityOf(finding.condition)), "] ",
               ConditionName(finding.condition), " in ", netlink::ToString(finding.chain),
               finding.mended ? " (mended): " : ": ", finding.message);
  }
}

void AppendFights(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nFights: ", state.fights.size(), "\n");
  for (const Fight& fight : state.fights) {
    AppendLine(out, "  ", netlink::ToString(fight.chain), ": ", fight.item, " undone ",
               fight.rounds, " times since ", TimeText(fight.since), ", next repair after ",
               absl::FormatDuration(fight.wait), "; by ", ToString(fight.by));
  }
}

void AppendIncidents(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nIncidents: ", state.incidents, "\n");
  for (const std::string& incident : state.recent_incidents) {
    AppendLine(out, "  ", incident);
  }
}

std::string MartianText(const AgentState& state) {
  const std::string exposed = ExposedBecause(state);
  if (!exposed.empty()) return absl::StrCat("EXPOSED: ", exposed);
  return absl::StrCat(
      state.martian_protection ? "a rule drops them" : "no rule, none is needed", ", ",
      state.martians_dropped, " dropped since the start",
      state.route_localnet.empty()
          ? ""
          : absl::StrCat(", route_localnet is 1 for ", absl::StrJoin(state.route_localnet, ", ")));
}

// What nobody uses is not here: it was retired, or nobody asked.
void AppendStale(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nStale, and kept: ", state.stale.size(),
                  state.stale.empty() ? "\n" : " (kube-iptables-agent status lists them)\n");
  for (const Claimed& claimed : state.claimed) {
    AppendLine(out, "  ", netlink::ToString(claimed.standing.chain), ": ", claimed.standing.text,
               ": ", ToString(claimed.claims));
  }
}

}  // namespace

std::string TimeText(absl::Time time) {
  if (time == absl::InfinitePast()) return "never";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string StatuszText(const AgentState& state, absl::string_view version, absl::Time now) {
  std::string out = absl::StrCat(
      "kube-iptables-agent statusz\n"
      "For people who look for a fault. Not for programs: any release may print it differently.\n\n"
      "Started: ",
      TimeText(state.started), "\nUp: ", UpText(now - state.started), "\nVersion: ", version,
      "\nEmulated version: ", featuregates::ToString(state.emulated_version),
      "\nMode: ", ModeName(state.mode),
      state.observing ? ", observed only: nothing is written" : "",
      "\niptables mode: ", state.iptables_mode.empty() ? "not known yet" : state.iptables_mode,
      "\nWatching: ", state.watching.empty() ? "not yet" : Printable(state.watching),
      "\nReady: ", IsReady(state) ? "yes" : "no", "\nLast look: ", TimeText(state.last_look),
      "\nLast success: ", TimeText(state.last_success), "\nLooks: ", state.looks,
      "\nMartian packets: ", Printable(MartianText(state)), "\nConfiguration: ",
      state.config_problem.empty()
          ? "as on disk"
          : absl::StrCat("not as on disk: ", Printable(state.config_problem)),
      "\n");
  if (!state.must_restart.empty()) {
    AppendLine(out, "Must restart: ", state.must_restart);
  }
  AppendFamilies(state, out);
  AppendFindings(state, out);
  AppendFights(state, out);
  AppendStale(state, out);
  AppendIncidents(state, out);
  return out;
}

std::string FlagzText(const Flags& flags) {
  std::string out =
      "kube-iptables-agent flags\n"
      "For people who look for a fault. Not for programs: any release may print it "
      "differently.\n\n";
  for (const Setting* setting : SettingsByFlag()) {
    if (!setting->only_for.empty()) continue;
    featuregates::AppendLine(out, setting->flag, "=", FlagText(*setting, flags));
  }
  return out;
}

}  // namespace kipt::agent
