// SPDX-License-Identifier: Apache-2.0
#include "agent/round_log.h"

#include <glog/logging.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::agent {
namespace {

std::string WritersText(const Fight& fight) {
  if (fight.writers.empty()) return "somebody who was not seen";
  return absl::StrJoin(fight.writers, ", ",
                       [](std::string* out, const Writer& writer) { *out += ToString(writer); });
}

void LogFamily(const FamilyState& family) {
  const std::string text =
      absl::StrCat(netlink::FamilyName(family.family), " is ", FamilyPhaseName(family.phase),
                   family.reason.empty() ? "" : ": ", family.reason);
  switch (family.phase) {
    case FamilyPhase::kFailed:
      LOG(ERROR) << text << "; trying again with growing pauses, silently until this changes";
      break;
    case FamilyPhase::kDegraded:
      LOG(WARNING) << text;
      break;
    default:
      LOG(INFO) << text;
  }
}

void LogFights(const Round& round) {
  for (const Fight& fight : round.fights_begun) {
    LOG(WARNING) << "OwnershipFight: \"" << fight.item << "\" in " << netlink::ToString(fight.chain)
                 << " was undone " << fight.rounds
                 << " times running within a second of its repair, by " << WritersText(fight)
                 << "; it is repaired ever more seldom until they stop";
  }
  for (const Fight& fight : round.fights_ended) {
    LOG(INFO) << "The fight over \"" << fight.item << "\" in " << netlink::ToString(fight.chain)
              << " has ended after " << fight.rounds << " rounds";
  }
}

}  // namespace

void LogRound(const Round& round, const AgentState& state) {
  const SyncReport& report = round.report;
  if (round.incident) {
    LOG(WARNING) << ToString(*round.incident);
  } else if (!report.applied.empty() && round.refills == 0) {
    LOG(INFO) << "Made " << report.applied.size() << " changes in "
              << absl::ToInt64Microseconds(round.duration) << " us, through " << state.iptables_mode
              << " (" << TriggerName(round.trigger) << ")";
  }
  for (const Change& change : report.applied) {
    VLOG(1) << netlink::FamilyName(netlink::ChainOf(change.operation).family) << " "
            << netlink::TableName(netlink::ChainOf(change.operation).table) << " "
            << netlink::ToString(change.operation) << ": " << change.reason;
  }
  if (round.refills > 0) {
    VLOG(2) << "Refilled " << round.refills << " rules that kube-proxy removes on its syncs";
  }
  LogFights(round);
  for (const FamilyState& family : round.changed_families) LogFamily(family);
  VLOG(2) << "Round (" << TriggerName(round.trigger) << "): " << report.looks << " looks, "
          << round.external_changes << " changes by others, "
          << absl::ToInt64Microseconds(round.duration) << " us";
}

}  // namespace kipt::agent
