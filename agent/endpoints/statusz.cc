// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/statusz.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/loop/suspects.h"

namespace kipt::agent {
namespace {

std::string UpText(absl::Duration up) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(up));
  return absl::StrFormat("%d hr %02d min %02d sec", seconds / 3600, seconds / 60 % 60,
                         seconds % 60);
}

void AppendFamilies(const AgentState& state, std::string& out) {
  out += "\nFamilies:\n";
  for (const FamilyState& family : state.families) {
    absl::StrAppend(&out, "  ", netlink::FamilyName(family.family), ": ",
                    FamilyPhaseName(family.phase), " since ", TimeText(family.since),
                    family.reason.empty() ? "" : ", ", OneLine(family.reason), "\n");
    const std::string why = NotReadyBecause(state, family);
    if (!why.empty()) absl::StrAppend(&out, "    not ready: ", OneLine(why), "\n");
  }
}

void AppendFindings(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nFindings: ", state.findings.size(), "\n");
  for (const Finding& finding : state.findings) {
    absl::StrAppend(&out, "  [", SeverityName(SeverityOf(finding.condition)), "] ",
                    ConditionName(finding.condition), " in ", netlink::ToString(finding.chain),
                    finding.mended ? " (mended): " : ": ", OneLine(finding.message), "\n");
  }
}

void AppendFights(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nFights: ", state.fights.size(), "\n");
  for (const Fight& fight : state.fights) {
    absl::StrAppend(&out, "  ", netlink::ToString(fight.chain), ": ", OneLine(fight.item),
                    " undone ", fight.rounds, " times since ", TimeText(fight.since),
                    ", next repair after ", absl::FormatDuration(fight.wait), "; by ",
                    OneLine(ToString(Suspected{fight.writers, fight.others})), "\n");
  }
}

void AppendIncidents(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nIncidents: ", state.incidents, "\n");
  for (const std::string& incident : state.recent_incidents) {
    absl::StrAppend(&out, "  ", OneLine(incident), "\n");
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
    absl::StrAppend(&out, "  ", netlink::ToString(claimed.standing.chain), ": ",
                    OneLine(claimed.standing.text), ": ", OneLine(ToString(claimed.claims)), "\n");
  }
}

}  // namespace

std::string TimeText(absl::Time time) {
  if (time == absl::InfinitePast()) return "never";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string OneLine(absl::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return line;
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
      "\nWatching: ", state.watching.empty() ? "not yet" : OneLine(state.watching),
      "\nReady: ", IsReady(state) ? "yes" : "no", "\nLast look: ", TimeText(state.last_look),
      "\nLast success: ", TimeText(state.last_success), "\nLooks: ", state.looks,
      "\nMartian packets: ", MartianText(state), "\nConfiguration: ",
      state.config_problem.empty()
          ? "as on disk"
          : absl::StrCat("not as on disk: ", OneLine(state.config_problem)),
      "\n");
  if (!state.must_restart.empty()) {
    absl::StrAppend(&out, "Must restart: ", OneLine(state.must_restart), "\n");
  }
  AppendFamilies(state, out);
  AppendFindings(state, out);
  AppendFights(state, out);
  AppendStale(state, out);
  AppendIncidents(state, out);
  return out;
}

}  // namespace kipt::agent
