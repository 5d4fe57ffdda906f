// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mixed_modes.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/family_chains.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

constexpr std::array<absl::string_view, 4> kIptablesTables = {"nat", "filter", "mangle", "raw"};

bool HasRules(const FamilyChains& chains) {
  return std::any_of(kIptablesTables.begin(), kIptablesTables.end(), [&](absl::string_view table) {
    const FamilyChains::Chains& all = chains.In(table);
    return std::any_of(all.begin(), all.end(),
                       [](const auto& entry) { return !entry.second.rules.empty(); });
  });
}

// Chains that a rule of the same table jumps to.
std::set<std::string> JumpTargets(const FamilyChains& chains, absl::string_view table) {
  std::set<std::string> targets;
  for (const auto& [name, chain] : chains.In(table)) {
    for (const SurveyRule& rule : chain.rules) {
      if (!JumpOf(rule).empty()) targets.emplace(JumpOf(rule));
    }
  }
  return targets;
}

struct Both {
  const FamilyChains& nft;
  const FamilyChains& legacy;
};

std::vector<AuditFinding> TwoHints(const Both& both) {
  const bool two = both.nft.Has("mangle", kHintChain);
  if (!both.legacy.Has("mangle", kHintChain) || (!two && !both.nft.Has("mangle", kCanaryChain))) {
    return {};
  }
  AuditFinding finding = {
      .kind = AuditKind::kTwoHints, .severity = AuditSeverity::kError, .family = both.nft.name()};
  if (two) {
    finding.message =
        "both modes have mangle/KUBE-IPTABLES-HINT: other programs cannot tell which iptables this "
        "node uses, and may write to the wrong one";
    finding.details = {"mangle/KUBE-IPTABLES-HINT"};
    finding.remedy = "Delete the chain from the mode that the host's iptables does not have.";
  } else {
    finding.message =
        "legacy has mangle/KUBE-IPTABLES-HINT and nft has mangle/KUBE-KUBELET-CANARY: "
        "iptables-wrappers takes either, nft's first, and so writes to nft";
    finding.details = {"mangle/KUBE-KUBELET-CANARY"};
    finding.remedy =
        "Delete the canary from the mode that the host's iptables does not have; "
        "--stale-chains=retire does.";
  }
  return {finding};
}

std::vector<AuditFinding> SameChains(const Both& both) {
  AuditFinding live = {
      .kind = AuditKind::kSameChainInBothModes,
      .severity = AuditSeverity::kError,
      .family = both.nft.name(),
      .message =
          "chains of Kubernetes' are in use in both modes: packets pass both, and the mode "
          "that nobody updates any more sends some to endpoints that are gone",
      .remedy =
          "Find which of the two kubelet and kube-proxy write to, and flush the other by "
          "kube-proxy --cleanup of that mode, or by a reboot."};
  AuditFinding half = live;
  half.severity = AuditSeverity::kWarning;
  half.message =
      "chains of Kubernetes' that are in use in one mode stand, unused but not empty, in "
      "the other: left over from before a change of modes";
  half.remedy = "A reboot removes them.";
  for (const absl::string_view table : {"mangle", "nat", "filter"}) {
    const std::set<std::string> nft_targets = JumpTargets(both.nft, table);
    const std::set<std::string> legacy_targets = JumpTargets(both.legacy, table);
    std::set<std::string> live_groups;
    std::set<std::string> half_groups;
    for (const auto& [name, chain] : both.nft.In(table)) {
      if (chain.base || !IsKubernetes(OwnerOfChain(both.nft.Id(table), name))) continue;
      const SurveyChain* other = both.legacy.Find(table, name);
      if (other == nullptr || (chain.rules.empty() && other->rules.empty())) continue;
      const bool in_nft = nft_targets.count(name) != 0;
      const bool in_legacy = legacy_targets.count(name) != 0;
      const std::string group = absl::StrCat(table, "/", ChainGroup(name));
      if (in_nft && in_legacy) live_groups.insert(group);
      if (in_nft != in_legacy && !(in_nft ? other->rules : chain.rules).empty()) {
        half_groups.insert(group);
      }
    }
    live.details.insert(live.details.end(), live_groups.begin(), live_groups.end());
    half.details.insert(half.details.end(), half_groups.begin(), half_groups.end());
  }
  std::vector<AuditFinding> meetings;
  if (!live.details.empty()) meetings.push_back(std::move(live));
  if (!half.details.empty()) meetings.push_back(std::move(half));
  return meetings;
}

// Where kubelet's jumps stand, and so where another mode can decide before them.
struct JumpPlace {
  absl::string_view table;
  absl::string_view base;
  absl::string_view chain;
};
constexpr std::array kJumpPlaces = {
    JumpPlace{"filter", "INPUT", kFirewallChain},
    JumpPlace{"filter", "OUTPUT", kFirewallChain},
    JumpPlace{"nat", "POSTROUTING", kPostroutingChain},
};

// Why no packet that comes through `place` of this mode reaches the jump in the other: it is
// dropped (an ACCEPT ends one hook only), or its address is translated already. Empty: it may.
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

std::vector<AuditFinding> Shadowed(const Both& both) {
  AuditFinding meeting = {
      .kind = AuditKind::kShadowedByOtherMode,
      .severity = AuditSeverity::kWarning,
      .family = both.nft.name(),
      .message = "a rule of one mode decides what a jump of kubelet's in the other was to decide",
      .remedy = "Move the rule to the mode that Kubernetes uses, where its place can be chosen."};
  for (const JumpPlace& place : kJumpPlaces) {
    for (const auto& [ours, other] :
         {std::pair(&both.nft, &both.legacy), std::pair(&both.legacy, &both.nft)}) {
      if (!ours->HangsOnBase(place.table, place.chain, place.base)) continue;
      const std::string first = WhatDecidesFirst(*other, place);
      if (first.empty()) continue;
      meeting.details.push_back(absl::StrCat(first, ", beside the jump to ", place.chain, " in ",
                                             ours->survey().mode, " ", place.table, "/",
                                             place.base));
    }
  }
  if (meeting.details.empty()) return {};
  return {std::move(meeting)};
}

void Append(std::vector<AuditFinding> more, std::vector<AuditFinding>& meetings) {
  std::move(more.begin(), more.end(), std::back_inserter(meetings));
}

const netlink::Survey* OfMode(absl::Span<const netlink::Survey> surveys, absl::string_view mode) {
  const auto found = std::find_if(surveys.begin(), surveys.end(), [&](const auto& survey) {
    return mode == absl::string_view(survey.mode);
  });
  return found == surveys.end() ? nullptr : &*found;
}

}  // namespace

std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys) {
  const netlink::Survey* nft = OfMode(surveys, "nft");
  const netlink::Survey* legacy = OfMode(surveys, "legacy");
  std::vector<AuditFinding> meetings;
  if (nft == nullptr || legacy == nullptr) return meetings;
  for (const netlink::Family family : netlink::kFamilies) {
    const FamilyChains nft_chains(*nft, family);
    const FamilyChains legacy_chains(*legacy, family);
    const Both both = {nft_chains, legacy_chains};
    const size_t before = meetings.size();
    Append(TwoHints(both), meetings);
    Append(SameChains(both), meetings);
    Append(Shadowed(both), meetings);
    if (meetings.size() == before && HasRules(nft_chains) && HasRules(legacy_chains)) {
      meetings.push_back({.kind = AuditKind::kBothModesInUse,
                          .family = nft_chains.name(),
                          .message = "both iptables modes have rules, and they do not meet"});
    }
  }
  std::stable_sort(meetings.begin(), meetings.end(),
                   [](const auto& a, const auto& b) { return a.severity > b.severity; });
  return meetings;
}

}  // namespace kipt::agent
