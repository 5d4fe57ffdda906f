// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mode_meetings.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_owner.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

struct Both {
  FamilyChains nft;
  FamilyChains legacy;
};
using Findings = std::vector<AuditFinding>;

bool HasRules(const FamilyChains& chains) {
  constexpr absl::string_view kIptablesTables[] = {"nat", "filter", "mangle", "raw"};
  return absl::c_any_of(kIptablesTables, [&](auto table) {
    return absl::c_any_of(chains.In(table),
                          [](const auto& entry) { return !entry.second.rules.empty(); });
  });
}

// Chains that a rule of the same table jumps to.
std::set<std::string> JumpTargets(const FamilyChains& chains, absl::string_view table) {
  std::set<std::string> targets;
  for (const auto& [name, chain] : chains.In(table)) {
    for (const SurveyRule& rule : chain.rules) targets.emplace(JumpOf(rule));
  }
  return targets;
}

void AddTwoHints(const Both& both, Findings& meetings) {
  const bool two = both.nft.Has("mangle", kHintChain);
  if (!both.legacy.Has("mangle", kHintChain) || (!two && !both.nft.Has("mangle", kCanaryChain))) {
    return;
  }
  meetings.push_back(
      {.kind = AuditKind::kTwoHints,
       .severity = AuditSeverity::kError,
       .message =
           two ? "nft and iptables-legacy both have mangle/KUBE-IPTABLES-HINT: other programs "
                 "cannot tell which one this node uses, and may write to the wrong one"
               : "iptables-legacy has mangle/KUBE-IPTABLES-HINT and nft has "
                 "mangle/KUBE-KUBELET-CANARY: iptables-wrappers accepts either, checks nft first, "
                 "and so writes to nft",
       .details = {two ? "mangle/KUBE-IPTABLES-HINT" : "mangle/KUBE-KUBELET-CANARY"},
       .remedy = two ? "Delete the chain from the mode that the host's iptables does not use."
                     : "Delete the canary from the mode that the host's iptables does not use; "
                       "--stale-chains=retire does that."});
}

void AddSameChains(const Both& both, Findings& meetings) {
  std::vector<std::string> live;
  std::vector<std::string> half;
  for (const netlink::Table each : netlink::kTables) {
    const absl::string_view table = netlink::TableName(each);
    const std::set<std::string> nft_targets = JumpTargets(both.nft, table);
    const std::set<std::string> legacy_targets = JumpTargets(both.legacy, table);
    for (const auto& [name, chain] : both.nft.In(table)) {
      if (!IsKubernetes(OwnerOfChain(both.nft.Id(table), name, chain.base))) continue;
      const SurveyChain* other = both.legacy.Find(table, name);
      if (other == nullptr || (chain.rules.empty() && other->rules.empty())) continue;
      const bool in_nft = nft_targets.contains(name);
      const bool in_legacy = legacy_targets.contains(name);
      const std::string group = absl::StrCat(table, "/", ChainGroup(name));
      if (in_nft && in_legacy) live.push_back(group);
      if (in_nft != in_legacy && !(in_nft ? other->rules : chain.rules).empty()) {
        half.push_back(group);
      }
    }
  }
  const auto add = [&](std::vector<std::string>& groups, AuditSeverity severity,
                       const char* message, const char* remedy) {
    // Chains come sorted, and so do their groups.
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    if (groups.empty()) return;
    meetings.push_back({.kind = AuditKind::kSameChainInBothModes,
                        .severity = severity,
                        .message = message,
                        .details = groups,
                        .remedy = remedy});
  };
  add(live, AuditSeverity::kError,
      "Kubernetes chains are in use in both modes: packets pass both, and the mode "
      "without updates sends some to endpoints that are gone",
      "Let kubelet and kube-proxy use one mode, and reboot: the other one is then empty. Do not "
      "run "
      "kube-proxy --cleanup next to a running kube-proxy.");
  add(half, AuditSeverity::kWarning,
      "Kubernetes chains are in use in one iptables mode; the other mode still has them, unused "
      "but not empty, from before a change of modes",
      "A reboot removes them.");
}

// Kubelet's jumps: another mode can decide before them.
struct JumpPlace {
  absl::string_view table;
  absl::string_view base;
  absl::string_view chain;
};
constexpr JumpPlace kJumpPlaces[] = {
    {"filter", "INPUT", kFirewallChain},
    {"filter", "OUTPUT", kFirewallChain},
    {"nat", "POSTROUTING", kPostroutingChain},
};

// Why no packet that passes `place` of this mode reaches the jump in the other: it is dropped (an
// ACCEPT ends one hook only), or its address is translated already. Empty where one may.
std::string WhatDecidesFirst(const FamilyChains& chains, const JumpPlace& place) {
  const std::string where = absl::StrCat(chains.survey().mode, " ", place.table, "/", place.base);
  const SurveyChain* base = chains.Find(place.table, place.base);
  if (base == nullptr) return "";
  for (const SurveyRule& rule : base->rules) {
    if (!IsUnconditionalTerminal(rule)) continue;
    const std::string target = TargetName(rule);
    const bool decides = place.table == "nat" ? target != "RETURN" && target != "ACCEPT"
                                              : target == "DROP" || target == "REJECT";
    return decides ? absl::StrCat(where, ": ", ToString(chains.Id(place.table), rule)) : "";
  }
  return base->policy == "DROP" ? absl::StrCat(where, " has the policy DROP") : "";
}

void AddShadowed(const Both& both, Findings& meetings) {
  std::vector<std::string> details;
  for (const JumpPlace& place : kJumpPlaces) {
    for (const auto& [ours, other] :
         {std::pair(&both.nft, &both.legacy), std::pair(&both.legacy, &both.nft)}) {
      if (!ours->HangsOnBase(place.table, place.chain, place.base)) continue;
      const std::string first = WhatDecidesFirst(*other, place);
      if (first.empty()) continue;
      details.push_back(absl::StrCat(first, ", next to the jump to ", place.chain, " in ",
                                     ours->survey().mode, " ", place.table, "/", place.base));
    }
  }
  if (details.empty()) return;
  meetings.push_back(
      {.kind = AuditKind::kShadowedByOtherMode,
       .severity = AuditSeverity::kWarning,
       .message = "a rule in one iptables mode decides before kubelet's jump in the other mode",
       .details = std::move(details),
       .remedy =
           "Move the rule to the mode that Kubernetes uses, where you can choose its position."});
}

}  // namespace

std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys) {
  const auto nft = std::ranges::find(surveys, "nft", &netlink::Survey::mode);
  const auto legacy = std::ranges::find(surveys, "legacy", &netlink::Survey::mode);
  Findings all;
  if (nft == surveys.end() || legacy == surveys.end()) return all;
  for (const netlink::Family family : netlink::kFamilies) {
    const Both both = {FamilyChains(*nft, family), FamilyChains(*legacy, family)};
    Findings meetings;
    AddTwoHints(both, meetings);
    AddSameChains(both, meetings);
    AddShadowed(both, meetings);
    if (meetings.empty() && HasRules(both.nft) && HasRules(both.legacy)) {
      meetings.push_back({.kind = AuditKind::kBothModesInUse,
                          .message = "both iptables modes have rules, and these do not conflict"});
    }
    for (AuditFinding& meeting : meetings) {
      meeting.family = both.nft.name();
      meeting.count = meeting.details.size();
      all.push_back(std::move(meeting));
    }
  }
  return all;
}

}  // namespace kipt::agent
