// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds beyond the rules of one survey: where the rules of two iptables modes meet,
// CNI configurations, routing rules, sysctls; and what could not be read.
#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

// ---- two iptables modes ----

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

// ---- CNI configurations ----

// The kube-proxy that keeps `chain`, else the last that there is. A plugin writes to the mode of
// the node's iptables, and kube-proxy does too.
KubeProxyFacts ProxyFor(absl::string_view chain, const std::vector<FamilyAudit>& families,
                        const AuditOptions& options) {
  const KubeProxyFacts* any = nullptr;
  for (const FamilyAudit& audit : families) {
    if (FutureOf(chain, audit.after, options) == ChainFuture::kKeptByProxy) return audit.after;
    if (any == nullptr || audit.after.mode != KubeProxyMode::kNone) any = &audit.after;
  }
  return any == nullptr ? KubeProxyFacts() : *any;
}

// What a plugin that names `chain` has to expect; fills in the severity and the consequence.
void GradeCni(bool exists, const KubeProxyFacts& proxy, const AuditOptions& options,
              AuditFinding& finding) {
  const std::string& chain = finding.chain;
  const ChainFuture future = FutureOf(chain, proxy, options);
  const bool is_private = future == ChainFuture::kPrivate;
  const bool kept = future == ChainFuture::kKept || future == ChainFuture::kKeptByProxy;
  finding.severity =
      kept || (is_private && exists) ? AuditSeverity::kWarning : AuditSeverity::kError;
  if (kept || future == ChainFuture::kEmpty || is_private) {
    finding.consequence =
        absl::StrCat(ConsequenceForUsers(chain, proxy, options),
                     is_private && !exists ? " The chain does not exist: the plugin's next ADD "
                                             "fails, and pods with host ports do not start."
                                           : "");
    return;
  }
  const bool gate = options.change == NodeChange::kOwnershipCleanup;
  finding.consequence = absl::StrCat(
      gate && options.mode == Mode::kCleanup && !exists
          ? absl::StrCat("IPTablesOwnershipCleanup is on, and there is no ", chain, ": ")
          : absl::StrCat(
                WhenChanged(options),
                exists ? "no program makes the chain again: " : "no program makes the chain: ",
                "after the next reboot or flush "),
      "its next ADD will fail, and pods with host ports do not start.");
}

void AuditCni(const NodeView& view, const std::vector<FamilyAudit>& families,
              FindingCollector& findings) {
  for (const CniReference& reference : view.cni.references) {
    // Other chains do not concern kubelet.
    if (!IsKubeletsOrOurs(OwnerOfChain({.family = "ip", .name = "nat"}, reference.chain))) continue;
    const std::string chain = absl::StrCat("nat/", reference.chain);
    AuditFinding finding = {
        .kind = AuditKind::kCniConfig,
        .chain = chain,
        .owner = Owner::kPortmap,
        .message = absl::StrCat("the CNI plugin ", reference.plugin, " uses ", chain),
        .remedy = RemedyForUsers(chain, Owner::kPortmap)};
    const bool exists = absl::c_any_of(
        families, [&](const auto& audit) { return audit.chains.Has("nat", reference.chain); });
    GradeCni(exists, ProxyFor(chain, families, findings.options), findings.options, finding);
    if (reference.backend == "nftables") {
      finding.severity = AuditSeverity::kError;
      finding.consequence =
          "With the backend nftables the plugin refuses externalSetMarkChain: "
          "pods with host ports do not start.";
    }
    findings.AddDetail(std::move(finding), reference.file,
                       absl::StrCat(reference.plugin, " ", reference.backend));
  }
  for (const std::string& problem : view.cni.problems) {
    findings.AddDetail(
        {.kind = AuditKind::kCniConfigUnreadable,
         .severity = AuditSeverity::kWarning,
         .message = "unread CNI configurations may name kubelet's chains",
         .remedy = "Run audit where it can read them (--host-root), or fix the file."},
        problem);
  }
}

// ---- routing rules, sysctls ----

void AuditIpRule(const FwmarkRule& rule, FindingCollector& findings) {
  const uint32_t ours = findings.options.OurMarks();
  if ((rule.mask & ours) == 0) return;
  const bool names = (rule.mark & rule.mask & ours) != 0;
  const std::string bits = HexText(rule.mask & ours);
  const bool spares = names && rule.inverted;
  const bool routes = rule.inverted ? !names && (rule.mask & ~ours) == 0 : names;
  const std::string which = absl::StrCat(rule.inverted && !routes ? "leave out" : "match only",
                                         " packets ", names || routes ? "with" : "without");
  AuditFinding finding = {
      .kind = AuditKind::kIpRuleFwmark,
      .severity = spares || routes ? AuditSeverity::kWarning : AuditSeverity::kInfo,
      .family = std::string(netlink::FamilyName(rule.family)),
      .message =
          absl::StrCat("routing rules ", which, " mark bit ", bits, ", which kubelet's chains set"),
      .mark_bits = rule.mask & ours};
  if (finding.severity == AuditSeverity::kWarning) {
    finding.consequence =
        spares ? "The program that marks such packets meets kubelet's chains: with the drop bit "
                 "they are dropped, with the other one masqueraded."
               : "They route packets that are marked to be masqueraded or dropped.";
    finding.remedy = absl::StrCat(
        spares ? "Give that program another mark" : "Change the mask of the routing rule",
        ", or the bits: --iptables-masquerade-bit (kube-proxy's must be the same) and "
        "--iptables-drop-bit.");
  }
  findings.AddDetail(std::move(finding), rule.text, absl::StrCat(which, " ", bits));
}

bool IsMartianRule(const SurveyRule& rule) {
  const netlink::Rule& matches = KnownMatches(rule);
  return TargetName(rule) == "DROP" && matches.source && matches.source->negated &&
         matches.destination == DropMartians(0).destination;
}

// KUBE-FIREWALL with its rule, on INPUT, or this agent's native table.
bool DropsMartians(const FamilyAudit& audit) {
  return audit.chains.survey().tables.contains(audit.chains.Id(kNativeTable)) ||
         (audit.chains.HangsOnBase("filter", kFirewallChain, "INPUT") &&
          absl::c_any_of(audit.chains.Rules("filter", kFirewallChain), IsMartianRule));
}

void AuditRouteLocalnet(const NodeView& view, const std::vector<FamilyAudit>& families,
                        FindingCollector& findings) {
  const bool safe = absl::c_any_of(families, [](const FamilyAudit& audit) {
    return audit.chains.family() == netlink::Family::kIPv4 && DropsMartians(audit);
  });
  if (view.route_localnet.empty() || safe || !view.martians_dropped_by.empty()) return;
  findings.AddDetail(
      {.kind = AuditKind::kRouteLocalnetExposed,
       .severity = AuditSeverity::kError,
       .family = "ip",
       .chain = "filter/KUBE-FIREWALL",
       .message = absl::StrCat(view.route_localnet.interfaces.empty()
                                   ? "route_localnet may be on, because it cannot be "
                                     "read"
                                   : "route_localnet is on",
                               ", and no rule drops martian packets: neighbours "
                               "reach what listens on 127.0.0.1 (CVE-2020-8558)"),
       .remedy = "Let kubelet or this agent make filter/KUBE-FIREWALL, or set "
                 "net.ipv4.conf.*.route_localnet to 0 where no program needs it."},
      ToString(view.route_localnet));
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

void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings) {
  AuditCni(view, families, findings);
  for (const FwmarkRule& rule : view.ip_rules) AuditIpRule(rule, findings);
  AuditDeviceMarks(view, families, findings);
  AuditRouteLocalnet(view, families, findings);
  for (const std::string& problem : view.problems) {
    findings.AddDetail({.kind = AuditKind::kNotSeen,
                        .severity = AuditSeverity::kWarning,
                        .message = "a source could not be read: dependents of kubelet's chains "
                                   "there are missing from this report"},
                       problem);
  }
}

}  // namespace kipt::agent
