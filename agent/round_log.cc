// SPDX-License-Identifier: Apache-2.0
#include "agent/round_log.h"

#include <unistd.h>

#include <cstdio>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/loop/damping.h"
#include "agent/policy/diff.h"
#include "agent/policy/rule_forms.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

void LogFamily(const FamilyState& family) {
  const std::string text =
      absl::StrCat(netlink::FamilyName(family.family), " is ", FamilyPhaseName(family.phase),
                   family.reason.empty() ? "" : ": ", family.reason);
  const bool failed = family.phase == FamilyPhase::kFailed;
  const bool degraded = family.phase == FamilyPhase::kDegraded;
  LOG_AT_LEVEL(failed     ? google::ERROR
               : degraded ? google::WARNING
                          : google::INFO)
      << text << (failed ? "; trying again with growing pauses, silently until this changes" : "");
}

// What `sync` would do.
void LogPending(const SyncReport& report, netlink::Family family) {
  for (const Change& change : WithoutNative(report.PendingOf(family))) {
    LOG(INFO) << "Would: " << netlink::ToString(netlink::ChainOf(change.operation)) << " "
              << netlink::ToString(change.operation) << ": " << change.reason;
  }
}

// A table that is flushed in a loop is one fight over many chains, and one line.
std::string FightText(const std::vector<Fight>& fights) {
  std::string text =
      absl::StrCat("\"", fights[0].item, "\" in ", netlink::ToString(fights[0].chain));
  if (fights.size() > 1) absl::StrAppend(&text, " and ", fights.size() - 1, " more");
  return text;
}

void LogFights(const Round& round) {
  if (!round.fights_begun.empty()) {
    const Fight& first = round.fights_begun[0];
    LOG(WARNING) << "OwnershipFight: " << FightText(round.fights_begun) << " was undone "
                 << first.rounds << " times running within a second of its repair, by "
                 << ToString(first.by)
                 << "; it is repaired less and less often, but at least every "
                 << absl::FormatDuration(kLongestFightWait);
  }
  if (!round.fights_ended.empty()) {
    LOG(INFO) << "The fight over " << FightText(round.fights_ended) << " has ended after "
              << round.fights_ended[0].rounds << " rounds";
  }
}

// Identifies what is kept without the claims' texts, which can name a chain of a pod and so change
// with every pod.
std::string KeptItems(const std::vector<Claimed>& kept) {
  std::string items;
  for (const Claimed& each : kept) {
    absl::StrAppend(&items, netlink::ToString(each.standing.chain), each.standing.text);
    for (const Claim& claim : each.claims) absl::StrAppend(&items, ClaimKindName(claim.kind));
  }
  return items;
}

// The first claim of each kind speaks for the others.
std::string KeptText(const std::vector<Claimed>& kept) {
  std::map<ClaimKind, std::pair<int, std::string>> kinds;
  for (const Claimed& each : kept) {
    for (const Claim& claim : each.claims) {
      auto& [count, text] = kinds[claim.kind];
      if (count++ == 0) {
        text = absl::StrCat(netlink::ToString(each.standing.chain), ": ", each.standing.text, ": ",
                            claim.text);
      }
    }
  }
  return absl::StrJoin(kinds, "; ", [](std::string* out, const auto& kind) {
    const auto& [count, text] = kind.second;
    absl::StrAppend(out, ClaimKindName(kind.first), " (", count, "): ", text,
                    count > 1 ? ", ..." : "");
  });
}

}  // namespace

StderrLog::StderrLog(const char* program, const Flags& flags) {
  FLAGS_v = flags.v.value_or(0);
  FLAGS_vmodule = flags.vmodule.value_or("");
  // glog itself writes nowhere: neither files nor, unescaped, standard error.
  FLAGS_logtostderr = FLAGS_logtostdout = FLAGS_alsologtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  google::InitGoogleLogging(program);
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  google::AddLogSink(this);
}

StderrLog::~StderrLog() { google::RemoveLogSink(this); }

void StderrLog::send(google::LogSeverity severity, const char* /*full_filename*/,
                     const char* base_filename, int line, const google::LogMessageTime& time,
                     const char* message, size_t message_len) {
  std::string text = absl::StrFormat("%c%02d%02d %02d:%02d:%02d.%06d %5d %s:%d] ",
                                     google::GetLogSeverityName(severity)[0], time.month() + 1,
                                     time.day(), time.hour(), time.min(), time.sec(), time.usec(),
                                     gettid(), base_filename, line);
  featuregates::AppendLine(text, absl::string_view(message, message_len));
  // One write, so that lines of other processes on the same file do not come between.
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void LogConfig(const Config& config) {
  for (const std::string& warning : config.warnings) LOG(WARNING) << warning;
  for (const std::string& gate : config.gates.ignored()) {
    VLOG(2) << "Ignoring a feature gate of kubelet's that is none of ours: " << gate;
  }
  VLOG(1) << "Configuration:";
  for (const absl::string_view line : absl::StrSplit(ToString(config), '\n', absl::SkipEmpty())) {
    VLOG(1) << line;
  }
}

void LogRound(const Round& round, const AgentState& state) {
  const SyncReport& report = round.report;
  const std::vector<Change> applied = WithoutNative(report.applied);
  if (round.incident) {
    LOG(WARNING) << ToString(*round.incident);
  } else if (!applied.empty() && round.refills == 0) {
    const bool slow = round.duration >= kSlowRound;
    LOG_AT_LEVEL(slow ? google::WARNING : google::INFO)
        << "Made " << applied.size() << " changes in " << absl::ToInt64Microseconds(round.duration)
        << " us, through " << state.iptables_mode << " (" << TriggerName(round.trigger) << ")"
        << (slow ? ": an answer was lost or late; the kernel, a lock or a program is slow" : "");
  }
  for (const Change& change : report.applied) {
    if (!IsNative(change)) continue;
    const bool put = std::holds_alternative<netlink::PutNativeTable>(change.operation);
    LOG(INFO) << (put ? "Put the native table with the martian rules in place"
                      : "Removed the native table: KUBE-FIREWALL does its work");
  }
  for (const Change& change : applied) {
    VLOG(1) << netlink::FamilyName(netlink::ChainOf(change.operation).family) << " "
            << netlink::TableName(netlink::ChainOf(change.operation).table) << " "
            << netlink::ToString(change.operation) << ": " << change.reason;
  }
  if (round.refills > 0) {
    VLOG(2) << "Refilled " << round.refills << " rules that kube-proxy removes on its syncs";
  }
  LogFights(round);
  for (const FamilyState& family : round.changed_families) {
    LogFamily(family);
    if (family.phase == FamilyPhase::kObserved) LogPending(round.report, family.family);
  }
  VLOG(2) << "Round (" << TriggerName(round.trigger) << "): " << report.looks << " looks, "
          << round.external_changes << " changes by others, "
          << absl::ToInt64Microseconds(round.duration) << " us";
}

void RetirementLog::Log(const RetireReport& report) {
  const std::string& iptables_mode = report.iptables_mode;
  // The next quiet moment will do.
  if (absl::IsAborted(report.status)) return;
  if (!report.status.ok()) {
    LOG(WARNING) << "What is stale in iptables " << iptables_mode
                 << " was left as it is: " << report.status.message();
    return;
  }
  std::string items = KeptItems(report.plan.kept);
  if (std::exchange(kept_[iptables_mode], items) != items && !items.empty()) {
    LOG(INFO) << "Stale in iptables " << iptables_mode
              << ", and kept: " << KeptText(report.plan.kept);
  }
  if (!report.applied) return;
  const std::vector<Change> changes = WithoutNative(report.plan.changes);
  std::vector<std::string> chains;
  for (const Change& change : changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    chains.push_back(netlink::ToString(netlink::ChainOf(change.operation)));
  }
  LOG(INFO) << "Retired what nobody uses in iptables " << iptables_mode << ", in " << changes.size()
            << " changes; chains that went: "
            << (chains.empty() ? "none" : absl::StrJoin(chains, ", "))
            << "; kept: " << report.plan.kept.size();
  for (const Change& change : changes) {
    VLOG(1) << "Retired " << netlink::ToString(netlink::ChainOf(change.operation)) << ": "
            << netlink::ToString(change.operation);
  }
  for (const Claimed& kept : report.plan.kept) {
    VLOG(1) << "Kept " << netlink::ToString(kept.standing.chain) << ": " << kept.standing.text
            << ": " << ToString(kept.claims);
  }
}

}  // namespace kipt::agent
