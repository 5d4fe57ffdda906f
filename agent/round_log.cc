// SPDX-License-Identifier: Apache-2.0
#include "agent/round_log.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/loop/clock.h"
#include "agent/loop/damping.h"
#include "agent/policy/diff.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

std::string OperationText(const Change& change) { return netlink::ToString(change.operation); }
std::string ChainText(const Change& change) {
  return netlink::ToString(netlink::ChainOf(change.operation));
}

// `retried`: the agent tries to put in place what is missing.
void LogFamily(const FamilyState& family, bool retried) {
  LOG_AT_LEVEL(static_cast<google::LogSeverity>(RowOf(family.phase).severity))
      << netlink::FamilyName(family.family) << " is " << FamilyPhaseName(family.phase)
      << (family.reason.empty() ? "" : ": ") << family.reason
      << (retried ? "; trying again with growing pauses, silently until this changes" : "");
}

// A table that is flushed in a loop is one fight over many chains, and one line.
std::string FightText(const std::vector<Fight>& fights) {
  std::string text =
      absl::StrCat(GoQuote(fights[0].item), " in ", netlink::ToString(fights[0].chain));
  if (fights.size() > 1) absl::StrAppend(&text, " and ", fights.size() - 1, " more");
  return text;
}

void LogFights(const Round& round) {
  if (!round.fights_begun.empty()) {
    const Fight& first = round.fights_begun[0];
    LOG(WARNING) << "OwnershipFight: " << FightText(round.fights_begun) << " was undone "
                 << first.rounds << " times in a row within a second of its repair, by "
                 << ToString(first.by)
                 << "; it is repaired less and less often, but at least every "
                 << absl::FormatDuration(kLongestFightWait);
  }
  if (round.fights_ended.empty()) return;
  LOG(INFO) << "The fight over " << FightText(round.fights_ended) << " has ended after "
            << round.fights_ended[0].rounds << " rounds";
}

// Identifies what is kept. Without the claims' texts, which may name a pod's chain.
std::string KeptItems(const std::vector<Claimed>& kept) {
  std::string items;
  for (const Claimed& each : kept) {
    absl::StrAppend(&items, netlink::ToString(each.item.chain), each.item.text);
    for (const Claim& claim : each.claims) absl::StrAppend(&items, ClaimKindName(claim.kind));
  }
  return items;
}

// One claim of each kind.
std::string KeptText(const std::vector<Claimed>& kept) {
  std::map<ClaimKind, std::vector<std::string>> kinds;
  for (const Claimed& each : kept) {
    for (const Claim& claim : each.claims) {
      kinds[claim.kind].push_back(
          absl::StrCat(netlink::ToString(each.item.chain), ": ", each.item.text, ": ", claim.text));
    }
  }
  return absl::StrJoin(kinds, "; ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, ClaimKindName(kind.first), " (", kind.second.size(), "): ", kind.second[0],
                    kind.second.size() > 1 ? ", ..." : "");
  });
}

}  // namespace

void LogConfig(const Config& config) {
  for (const std::string& warning : config.warnings) LOG(WARNING) << warning;
  for (const std::string& gate : config.gates.ignored()) {
    VLOG(1) << "Ignoring a feature gate of kubelet that this agent does not have: " << gate;
  }
  VLOG(1) << "Configuration:";
  for (const absl::string_view line : absl::StrSplit(ToString(config), '\n', absl::SkipEmpty())) {
    VLOG(1) << line;
  }
}

void LimitedWarnings::Log(absl::string_view line) {
  const SteadyTime now = SteadyNow();
  if (allowance_.When(1, now) > now) {
    ++left_out_;
    return;
  }
  allowance_.Take(1, now);
  const uint64_t left_out = std::exchange(left_out_, 0);
  LOG(WARNING) << line
               << (left_out == 0 ? "" : absl::StrCat(" (", left_out, " such lines were left out)"));
}

void RoundLog::Log(const Round& round, const AgentState& state) {
  const SyncReport& report = round.report;
  const std::vector<Change> applied = WithoutNative(report.applied);
  const int64_t micros = absl::ToInt64Microseconds(round.duration);
  if (round.incident) {
    LOG(WARNING) << ToString(*round.incident);
  } else if (!applied.empty() && round.refills == 0) {
    const bool slow = round.duration >= kSlowRound;
    LOG_AT_LEVEL(slow ? google::WARNING : google::INFO)
        << "Made " << applied.size() << " changes in " << micros << " us, through "
        << state.iptables_mode << " (" << TriggerName(round.trigger) << ")"
        << (slow ? ": an answer was lost or late; the kernel, a lock or a program is slow" : "");
  }
  for (const Blocker& blocker : round.new_blockers) {
    blockers_[blocker.finding.condition].Log(ToString(blocker));
  }
  if (round.lost_proxy_jumps) lost_jumps_.Log(ToString(*round.lost_proxy_jumps));
  if (round.foreign_rules) {
    foreign_rules_.Log(
        absl::StrCat(ToString(*round.foreign_rules), "; list what you expect in --expected-rules"));
  }
  for (const Change& change : report.applied) {
    if (!IsNative(change)) continue;
    const bool put = std::holds_alternative<netlink::PutNativeTable>(change.operation);
    LOG(INFO) << (put ? "Made the native table with the martian rules"
                      : "Removed the native table: KUBE-FIREWALL has its rules");
  }
  for (const Change& change : applied) {
    const netlink::ChainId chain = netlink::ChainOf(change.operation);
    VLOG(1) << netlink::FamilyName(chain.family) << " " << netlink::TableName(chain.table) << " "
            << OperationText(change) << ": " << change.reason;
  }
  if (round.refills > 0) {
    VLOG(2) << "Refilled " << round.refills << " rules that kube-proxy removes on its syncs";
  }
  LogFights(round);
  for (const FamilyState& family : round.changed_families) {
    const bool pending = !report.ResultOf(family.family).status.ok() ||
                         (family.pending_changes > 0 && !state.observing);
    LogFamily(family, /*retried=*/family.phase == FamilyPhase::kFailed && pending);
    if (!state.observing) continue;
    for (const Change& change : WithoutNative(report.PendingOf(family.family))) {
      LOG(INFO) << "Would: " << ChainText(change) << " " << OperationText(change) << ": "
                << change.reason;
    }
  }
  VLOG(2) << "Round (" << TriggerName(round.trigger) << "): " << report.checks << " checks, "
          << round.external_changes << " changes by others, " << micros << " us";
}

void LogAudit(const NodeAudit& before, const NodeAudit& after) {
  constexpr size_t kMostLines = 20;
  const std::vector<FindingNews> news = NewsOf(before, after);
  for (size_t i = 0; i < std::min(news.size(), kMostLines); ++i) {
    LOG_AT_LEVEL(news[i].gone ? google::INFO : google::WARNING)
        << (news[i].gone ? "Finding gone: " : "Finding: ") << news[i].text
        << (news[i].gone ? "" : "; /auditz has its rules and what to do");
  }
  if (news.size() > kMostLines) {
    LOG(WARNING) << news.size() - kMostLines << " findings more came or are gone; see /auditz";
  }
  VLOG(1) << "Audited the node: " << news.size() << " findings came or are gone";
}

void LogRetirement(const RetireReport& report, std::map<std::string, std::string>& kept_items) {
  const std::string& mode = report.iptables_mode;
  std::vector<Claimed> kept = report.plan.kept;
  std::erase_if(kept, [](const Claimed& one) { return one.of_kube_proxy; });
  // It is tried again soon.
  if (absl::IsAborted(report.status)) return;
  if (!report.status.ok()) {
    LOG(WARNING) << "Stale items in iptables " << mode << " were kept: " << report.status.message();
    return;
  }
  std::string items = KeptItems(kept);
  if (std::exchange(kept_items[mode], items) != items && !items.empty()) {
    LOG(INFO) << "Stale in iptables " << mode << ", and kept: " << KeptText(kept);
  }
  if (!report.applied) return;
  const std::vector<Change> changes = WithoutNative(report.plan.changes);
  std::vector<std::string> chains;
  for (const Change& change : changes) {
    const bool deletes = std::holds_alternative<netlink::DeleteChain>(change.operation);
    if (deletes) chains.push_back(ChainText(change));
  }
  LOG(INFO) << "Retired unused items in iptables " << mode << ", in " << changes.size()
            << " changes; removed chains: "
            << (chains.empty() ? "none" : absl::StrJoin(chains, ", ")) << "; kept: " << kept.size();
  for (const Change& change : changes) {
    VLOG(1) << "Retired " << ChainText(change) << ": " << OperationText(change);
  }
  for (const Claimed& each : kept) {
    VLOG(1) << "Kept " << netlink::ToString(each.item.chain) << ": " << each.item.text << ": "
            << ToString(each.claims);
  }
}

}  // namespace kipt::agent
