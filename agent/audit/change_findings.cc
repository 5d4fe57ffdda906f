// SPDX-License-Identifier: Apache-2.0
//
// What a change breaks, by rules and ChangeFacts. Pure.
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/change_advice.h"
#include "agent/audit/family_audit.h"
#include "agent/policy/rule_forms.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

constexpr absl::string_view kNodePorts = "KUBE-NODEPORTS";

using namespace advice;  // NOLINT(google-build-using-namespace): a table for this file

// ---- kube-proxy leaves its chains ----

// Its jumps from base chains, which it deletes one by one. Not INPUT's to filter/KUBE-SERVICES (up
// to 1.19), which only 1.20 to 1.27 delete.
constexpr std::pair<absl::string_view, absl::string_view> kProxyJumps[] = {
    {"KUBE-SERVICES", "kubernetes service portals"},
    {"KUBE-EXTERNAL-SERVICES", "kubernetes externally-visible service portals"},
    {"KUBE-NODEPORTS", "kubernetes health check service ports"},
    {"KUBE-FORWARD", "kubernetes forwarding rules"},
    {"KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall"},
    {"KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"},
    {"KUBE-POSTROUTING", "kubernetes postrouting rules"},
    {"KUBE-NODE-PORT", "kubernetes health check rules"},
    {"KUBE-IPVS-FILTER", "kubernetes ipvs access filter"},
    {"KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"},
};

bool IsProxyJump(const netlink::TableId& table, absl::string_view base, const SurveyRule& rule) {
  const netlink::Rule* known = rule.rule();
  return known != nullptr && !known->source && !known->destination && !known->mark &&
         !known->conn_label &&
         !(table.name == "filter" && base == "INPUT" && JumpOf(rule) == "KUBE-SERVICES") &&
         absl::c_linear_search(kProxyJumps, std::pair<absl::string_view, absl::string_view>(
                                                JumpOf(rule), known->comment));
}

// kube-proxy --cleanup deletes `chain`, by name alone.
bool IsCleanedUp(const netlink::TableId& table, absl::string_view chain) {
  if (table.name == "nat" && (chain == kMarkMasqChain || chain == kPostroutingChain)) return true;
  const Owner owner = OwnerOfChain(table, chain);
  return owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs;
}

void AuditCleanup(const FamilyAudit& audit, bool has_ip_vs) {
  for (const absl::string_view name : {"nat", "filter", "mangle"}) {
    const netlink::TableId table = audit.chains.Id(name);
    for (const auto& [from, chain] : audit.chains.In(name)) {
      if (IsCleanedUp(table, from)) continue;
      for (const SurveyRule& rule : chain.rules) {
        const absl::string_view jump = JumpOf(rule);
        if (jump.empty() || !IsCleanedUp(table, jump)) continue;
        if (chain.base && IsProxyJump(table, from, rule)) continue;
        AuditFinding finding = audit.Here(FindingOf(kBlocked));
        finding.chain = absl::StrCat(name, "/", jump);
        finding.owner = OwnerOfRule(table, from, chain.base, rule);
        if (has_ip_vs && finding.chain == kMarkMasqPlace) finding.consequence += kEmptiesMarkMasq;
        audit.findings.AddRule(std::move(finding), Audited(table, from, rule));
      }
    }
  }
}

// ---- node ports ----

// The rules of nat/KUBE-SERVICES that lead to node ports, on any address.
bool ServesEveryAddress(const SurveyRule& rule) {
  const std::optional<netlink::PrefixMatch>& destination = KnownMatches(rule).destination;
  return JumpOf(rule) == kNodePorts && (!destination || destination->negated);
}

void AuditNodePorts(const FamilyAudit& audit, const NodeView& view) {
  const auto& services = audit.chains.Rules("nat", "KUBE-SERVICES");
  const auto leads = absl::c_find_if(services, ServesEveryAddress);
  if (audit.chains.Rules("nat", kNodePorts).empty() || leads == services.end()) return;
  const auto add = [&](const Advice& advice, const std::string& detail) {
    AuditFinding finding = audit.Here(FindingOf(advice));
    finding.chain = absl::StrCat("nat/", kNodePorts);
    audit.findings.AddDetail(std::move(finding), detail);
  };
  add(kAddresses, absl::StrCat("-A KUBE-SERVICES ", ToString(audit.chains.Id("nat"), *leads)));
  // With --iptables-localhost-nodeports=false the rule spares 127.0.0.0/8.
  if (audit.chains.family() == netlink::Family::kIPv6 || KnownMatches(*leads).destination) return;
  const auto counter = view.facts.counters.find("localhost_nps_accepted_pkts");
  if (counter == view.facts.counters.end()) {
    if (!view.route_localnet.empty()) add(kLocalhostUnknown, "route_localnet is on");
  } else if (counter->second != 0) {
    add(kLocalhost, absl::StrCat("nfacct ", counter->first, ": ", counter->second, " packets"));
  }
}

// ---- firewalls ----

struct AcceptRow {
  absl::string_view base;
  absl::string_view chain;
};
constexpr AcceptRow kAccepts[] = {
    {"FORWARD", "KUBE-FORWARD"}, {"INPUT", kNodePorts}, {"INPUT", "KUBE-NODE-PORT"}};

// The rule that drops all packets of the chain `name` that no rule selects. Empty if another
// verdict ends them, none if some leave the chain. A chain in `seen` is not walked through again.
std::optional<std::string> VerdictOf(const FamilyChains& chains, absl::string_view name,
                                     std::set<std::string>& seen) {
  const bool called = !seen.empty();
  if (!seen.emplace(name).second) return std::nullopt;
  for (const SurveyRule& rule : chains.Rules("filter", name)) {
    const absl::string_view jump = JumpOf(rule);
    const bool leaves = Returns(rule) || (!jump.empty() && IsTerminal(rule));
    if (called && leaves) return std::nullopt;
    if (!IsUnconditional(rule)) continue;
    if (!jump.empty()) {
      std::optional<std::string> verdict = VerdictOf(chains, jump, seen);
      if (verdict) return verdict;
    }
    if (leaves) return std::nullopt;
    if (!IsTerminal(rule)) continue;
    const std::string target = TargetName(rule);
    if (target != "DROP" && target != "REJECT") return "";
    return absl::StrCat("-A ", name, " ", ToString(chains.Id("filter"), rule));
  }
  return std::nullopt;
}

// How `base` ends for packets that no rule selects; empty where they pass.
std::string DropOf(const FamilyChains& chains, absl::string_view base, const SurveyChain& chain) {
  std::set<std::string> seen;
  const std::optional<std::string> verdict = VerdictOf(chains, base, seen);
  if (verdict) return *verdict;
  return chain.policy == "DROP" ? absl::StrCat("filter/", base, " has the policy DROP") : "";
}

void AuditAccepts(const FamilyAudit& audit) {
  for (const AcceptRow& row : kAccepts) {
    const SurveyChain* base = audit.chains.Find("filter", row.base);
    if (base == nullptr || !audit.chains.HangsOnBase("filter", row.chain, row.base)) continue;
    const std::string drop = DropOf(audit.chains, row.base, *base);
    if (drop.empty()) continue;
    for (const SurveyRule& rule : audit.chains.Rules("filter", row.chain)) {
      if (TargetName(rule) != "ACCEPT") continue;
      AuditFinding finding = audit.Here(FindingOf(kBypass));
      finding.chain = absl::StrCat("filter/", row.chain);
      finding.details = {drop};
      audit.findings.AddRule(std::move(finding),
                             Audited(audit.chains.Id("filter"), std::string(row.chain), rule));
    }
  }
}

void AuditMasqueradeBit(const FamilyAudit& audit) {
  for (const SurveyRule& rule : audit.chains.Rules("nat", kMarkMasqChain)) {
    const uint32_t set = MarksSet(rule);
    if (set == 0 || set == netlink::kAllMarks || (set & kNftablesMasquerade) != 0) continue;
    AuditFinding finding = audit.Here(FindingOf(kBit));
    finding.chain = std::string(kMarkMasqPlace);
    audit.findings.AddRule(std::move(finding),
                           Audited(audit.chains.Id("nat"), std::string(kMarkMasqChain), rule));
  }
}

// ---- the host ----

// {5, 13} of "5.13.0-rc1+"; {0, 0} where there is none.
std::pair<int, int> VersionOf(absl::string_view text) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, absl::ByAnyChar(".-+"));
  std::pair<int, int> version;
  if (numbers.size() < 2 || !absl::SimpleAtoi(numbers[0], &version.first) ||
      !absl::SimpleAtoi(numbers[1], &version.second)) {
    return {};
  }
  return version;
}

// "inet firewalld": tables that iptables, Kubernetes and this agent did not make.
std::vector<std::string> TablesOfNft(const NodeView& view) {
  std::vector<std::string> tables;
  for (const netlink::Survey& survey : view.surveys) {
    for (const auto& [table, chains] : survey.tables) {
      const Owner owner = OwnerOfChain(table, chains.empty() ? "" : chains.begin()->first);
      if (!IsIptablesTable(table) && !IsKubernetes(owner) && owner != Owner::kThisAgent) {
        tables.push_back(ToString(table));
      }
    }
  }
  return tables;
}

void AuditNft(const NodeView& view, FindingCollector& findings) {
  const std::pair<int, int> version = VersionOf(view.facts.nft_version);
  const std::string program = absl::StrCat(view.facts.nft_path, ": ", view.facts.nft_version);
  if (view.facts.nft_version == "1.0.0") findings.AddDetail(FindingOf(kNft1_0_0), program);
  if (version >= std::pair(1, 0) || version == std::pair<int, int>()) return;
  AuditFinding finding = FindingOf(kOldNft);
  const std::vector<std::string> tables = TablesOfNft(view);
  if (!tables.empty()) {
    finding.severity = kError;
    finding.consequence += kBreaksFirewalls;
  }
  findings.AddDetail(finding, program);
  for (const std::string& table : tables) findings.AddDetail(finding, "table " + table);
}

void AuditHost(const NodeView& view, FindingCollector& findings) {
  const ChangeFacts& facts = view.facts;
  const std::pair<int, int> kernel = VersionOf(facts.kernel);
  const bool known = kernel != std::pair<int, int>();
  if (known && kernel < std::pair(5, 13)) findings.AddDetail(FindingOf(kOldKernel), facts.kernel);
  const std::vector<netlink::Family>& of_node = findings.options.families;
  for (const Capability& one : facts.missing) {
    if (one.family && !of_node.empty() && !absl::c_linear_search(of_node, *one.family)) continue;
    findings.AddDetail(FindingOf(kNoModules), absl::StrCat(one.feature, ": ", one.reason));
  }
  const auto counter = facts.counters.find("ct_state_invalid_dropped_pkts");
  if (known && kernel < std::pair(6, 1) && counter != facts.counters.end() &&
      counter->second != 0) {
    findings.AddDetail(FindingOf(kInvalid),
                       absl::StrCat("nfacct ", counter->first, ": ", counter->second, " packets"));
  }
  AuditNft(view, findings);
}

void AuditSaved(const NodeView& view, FindingCollector& findings) {
  for (const SavedRules& saved : view.facts.saved) {
    AuditFinding finding = FindingOf(kSaved);
    if (saved.refusal != BootRefusal::kNone) {
      constexpr std::array<const char*, 4> kInOrder = {"", kRefusedForChain, kRefusedForObject,
                                                       kRefusedForSyntax};
      finding.consequence = kInOrder.at(static_cast<size_t>(saved.refusal));
      if (saved.native) absl::StrAppend(&finding.consequence, " ");
    } else if (saved.native) {
      finding.consequence.clear();
    }
    if (saved.native) finding.consequence += kSavedByNft;
    for (const std::string& line : saved.lines) {
      findings.AddDetail(finding, absl::StrCat(saved.file, ":", line), saved.file);
    }
  }
}

// ---- IPVS ----

void AuditIpvs(const NodeView& view, const std::vector<FamilyAudit>& families,
               FindingCollector& findings) {
  const ChangeFacts& facts = view.facts;
  bool in_use = false;
  for (const FamilyAudit& audit : families) {
    if (audit.proxy.mode != KubeProxyMode::kIpvs) continue;
    in_use = true;
    // Before nftables mode that is what changes.
    if (findings.options.change != NodeChange::kKubeProxyIpvsRemoval) continue;
    for (const std::string& evidence : audit.proxy.evidence) {
      findings.AddDetail(audit.Here(FindingOf(kInIpvs)), evidence);
    }
  }
  if (facts.ipvs_device && !in_use) findings.AddDetail(FindingOf(kIpvsLeft), "kube-ipvs0");
  for (const auto& [scheduler, count] : facts.ipvs_schedulers) {
    const std::string detail = absl::StrCat(scheduler, ": ", Counted(count, "virtual service"));
    // A removed kube-proxy leaves its virtual services with its device.
    if (!in_use && !facts.ipvs_device) {
      findings.AddDetail(FindingOf(kVirtual), detail);
    } else if (scheduler != "rr") {
      findings.AddDetail(FindingOf(kScheduler), detail);
    }
  }
}

// ---- iptables-legacy ----

// How a program's iptables is chosen.
const char* RemedyForWriter(Owner owner) {
  switch (owner) {
    case Owner::kCalico:
      return "Set FELIX_IPTABLESBACKEND=Auto, with which it follows the hint, and reboot.";
    case Owner::kFlannel:
    case Owner::kKubeRouter:
    case Owner::kAntrea:
      return "Its image follows KUBE-IPTABLES-HINT: reboot, so that kubelet makes it in nft first.";
    case Owner::kPortmap:
    case Owner::kHostPorts:
    case Owner::kCrio:
    case Owner::kDocker:
    case Owner::kFirewalld:
      return "It runs the host's iptables: change that (update-alternatives), and reboot.";
    default:
      return kStay.remedy;
  }
}

void AuditLegacy(const FamilyAudit& audit) {
  AuditFinding kubernetes = audit.Here(FindingOf(kStayKubernetes));
  for (const auto& [table, chains] : audit.chains.survey().tables) {
    if (table.family != audit.chains.name()) continue;
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        const Owner owner = OwnerOfRule(table, name, chain.base, rule);
        if (IsKubernetes(owner) || owner == Owner::kThisAgent) {
          ++kubernetes.count;
          continue;
        }
        // Its code refuses (net/ipv4/netfilter/ipt_CLUSTERIP.c).
        const bool refused = TargetName(rule) == "CLUSTERIP";
        AuditFinding finding = audit.Here(FindingOf(refused ? kTarget : kStay));
        finding.owner = owner;
        if (!refused) finding.remedy = RemedyForWriter(owner);
        audit.findings.AddRule(std::move(finding), Audited(table, name, rule));
      }
    }
  }
  for (const auto& [of, rules] :
       audit.left_out == nullptr ? LeftOut().rules : audit.left_out->rules) {
    const auto& [family, owner] = of;
    if (family != audit.chains.name()) continue;
    if (IsKubernetes(owner) || owner == Owner::kThisAgent) {
      kubernetes.count += rules.count;
      continue;
    }
    AuditFinding finding = audit.Here(FindingOf(kStay));
    finding.owner = owner;
    audit.findings.AddLeftOut(std::move(finding), rules);
  }
  if (kubernetes.count != 0) audit.findings.AddSum(std::move(kubernetes), "kubernetes");
}

// kube-router has sets of the other two names.
bool IsKubeProxySet(absl::string_view set) {
  return absl::StartsWith(set, "KUBE-") && !absl::StartsWith(set, "KUBE-SRC-") &&
         !absl::StartsWith(set, "KUBE-DST-");
}

void AuditRulesOfChange(const FamilyAudit& audit, const NodeView& view) {
  for (const auto& [table, chains] : audit.chains.survey().tables) {
    if (table.family != audit.chains.name()) continue;
    for (const auto& [name, chain] : chains) {
      if (IsKubernetes(OwnerOfChain(table, name, chain.base))) continue;
      for (const SurveyRule& rule : chain.rules) {
        if (rule.opaque() == nullptr || !IsKubeProxySet(rule.opaque()->set)) continue;
        audit.findings.AddRule(audit.Here(FindingOf(kIpset)), Audited(table, name, rule));
      }
    }
  }
  AuditCleanup(audit, view.facts.has_ip_vs);
  const bool leaves = audit.proxy.KeepsMarkMasq() && !audit.after.KeepsMarkMasq();
  if (!leaves) return;
  AuditNodePorts(audit, view);
  AuditAccepts(audit);
  AuditMasqueradeBit(audit);
}

}  // namespace

void AuditChange(const NodeView& view, const std::vector<FamilyAudit>& families,
                 FindingCollector& findings) {
  const NodeChange change = findings.options.change;
  AuditSaved(view, findings);
  if (change == NodeChange::kOwnershipCleanup) return;
  for (const FamilyAudit& audit : families) {
    if (change != NodeChange::kIptablesNft) AuditRulesOfChange(audit, view);
    if (change == NodeChange::kIptablesNft && audit.chains.survey().mode == "legacy") {
      AuditLegacy(audit);
    }
  }
  if (change == NodeChange::kIptablesNft) {
    if (view.facts.no_nft_compat.empty()) return;
    findings.AddDetail(FindingOf(kNoCompat), view.facts.no_nft_compat);
    return;
  }
  AuditIpvs(view, families, findings);
  if (change == NodeChange::kKubeProxyNftables) AuditHost(view, findings);
}

}  // namespace kipt::agent
