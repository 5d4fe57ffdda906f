// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds of chains as a whole: whether KUBE-MARK-MASQ and KUBE-MARK-DROP still do
// something, which kube-proxy, or kpng, depends on them, and whether kubelet's probe of the
// iptables fails, or has failed, so that a family has none.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/change_advice.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/mark_walk.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/rule_forms.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

// ---- chains that mark without effect: packets that must be masqueraded or dropped are not ----

struct MarkChain {
  absl::string_view place;
  absl::string_view name;   // in table nat
  absl::string_view table;  // of the chain that acts on the mark, and of its jump
  absl::string_view listener;
  absl::string_view listener_base;
  MarkAction acts;
  absl::string_view action;
  AuditKind empty;
  AuditKind unheard;
};
constexpr MarkChain kMarkChains[] = {
    {kMarkMasqPlace, kMarkMasqChain, "nat", kPostroutingChain, "POSTROUTING",
     MarkAction::kMasquerade, "masqueraded", AuditKind::kMarkMasqEmpty,
     AuditKind::kMarkMasqUnheard},
    {kMarkDropPlace, kMarkDropChain, "filter", kFirewallChain, "INPUT", MarkAction::kDrop,
     "dropped", AuditKind::kMarkDropEmpty, AuditKind::kMarkDropUnheard},
};

// Why no rule acts on the mark that `chain` sets; empty where one does.
std::string WhyUnheard(const FamilyAudit& audit, const MarkChain& mark, const SurveyChain& chain) {
  const std::string listener = absl::StrCat(mark.table, "/", mark.listener);
  uint32_t bits = 0;
  for (const SurveyRule& rule : chain.rules) bits |= MarksSet(rule);
  if (!WhatActsOn(audit.surveys, audit.chains.family(), bits, mark.acts).empty()) return "";
  if (!audit.chains.Has(mark.table, mark.listener)) return absl::StrCat("there is no ", listener);
  if (!audit.chains.HangsOnBase(mark.table, mark.listener, mark.listener_base)) {
    return absl::StrCat("no jump from ", mark.listener_base, " leads to ", listener);
  }
  return absl::StrCat("packets reach no rule for that mark in ", listener);
}

std::string RemedyFor(const FamilyAudit& audit, const MarkChain& mark, const ChainUse& use,
                      bool empty) {
  if (mark.place == kMarkMasqPlace) {
    return "Masquerade in the rules themselves, or let kubelet, kube-proxy or this agent make the "
           "chain.";
  }
  if (use.by_kube_proxy.count != 0) {
    return "Upgrade kube-proxy to 1.25 or later; until then leave IPTablesOwnershipCleanup off, so "
           "that kubelet or this agent makes the chains.";
  }
  if (!empty && audit.proxy.mode == KubeProxyMode::kIptables && audit.proxy.newest == 0) {
    return "On IPv4, kube-proxy 1.27 and later empties filter/KUBE-FIREWALL on each sync, and so "
           "removes the rule for the mark. Drop in table filter instead.";
  }
  return "Drop in table filter instead.";
}

void AuditMarkChain(FamilyAudit& audit, const MarkChain& mark) {
  const SurveyChain* chain = audit.chains.Find("nat", mark.name);
  if (chain == nullptr) return;
  const ChainUse& use = audit.uses[std::string(mark.place)];
  const bool empty = chain->rules.empty();
  const std::string unheard = empty ? "" : WhyUnheard(audit, mark, *chain);
  if (!empty && (use.all == 0 || unheard.empty())) return;
  AuditFinding finding = audit.Here(
      {.kind = empty ? mark.empty : mark.unheard,
       .severity = use.all == 0 ? AuditSeverity::kInfo : AuditSeverity::kError,
       .chain = std::string(mark.place),
       .message = absl::StrCat(
           mark.place, empty ? " is empty" : " sets a mark that no rule acts on: ", unheard),
       .count = use.all});
  if (use.all == 0) {
    absl::StrAppend(&finding.message, "; no rule uses it");
  } else {
    finding.consequence = absl::StrCat("Packets of ", Counted(use.all, "rule"), " must be ",
                                       mark.action, " and are not (fails open).");
    finding.remedy = RemedyFor(audit, mark, use, empty);
  }
  audit.findings.AddSum(std::move(finding));
}

// ---- kube-proxy ----

Owner OwnerOf(const KubeProxyFacts& proxy) {
  if (proxy.mode == KubeProxyMode::kIpvs) return Owner::kKubeProxyIpvs;
  if (proxy.mode == KubeProxyMode::kNftables) return Owner::kKubeProxyNftables;
  return proxy.mode == KubeProxyMode::kKpng ? Owner::kKpng : Owner::kKubeProxy;
}

AuditFinding LeftOver(const FamilyAudit& audit) {
  std::vector<std::string> evidence = audit.proxy.evidence;
  for (const std::string& table : audit.nftables_proxy) {
    if (!absl::c_linear_search(evidence, table)) evidence.push_back(table);
  }
  const bool live = !audit.nftables_proxy.empty();
  return {.kind = AuditKind::kKubeProxyLeftOver,
          .owner = Owner::kKubeProxy,
          .message =
              "chains of kube-proxy's iptables or IPVS mode exist, and no kube-proxy of "
              "that mode maintains them",
          .details = std::move(evidence),
          .remedy = live ? advice::kRemoveNextToNftables : advice::kRemoveLeftovers};
}

void AddMode(const FamilyAudit& audit) {
  const KubeProxyFacts& proxy = audit.proxy;
  const auto add = [&](const AuditFinding& finding) { audit.findings.AddSum(audit.Here(finding)); };
  if (proxy.mode == KubeProxyMode::kLeftOver || proxy.leftovers) add(LeftOver(audit));
  if (proxy.mode == KubeProxyMode::kLeftOver) return;
  for (const std::string& jump : proxy.lost_jumps) {
    AuditFinding finding = audit.Here(FindingOf(advice::kJumpLost));
    finding.owner = OwnerOf(proxy);
    audit.findings.AddDetail(std::move(finding), jump);
  }
  if (proxy.mode == KubeProxyMode::kKpng) {
    return add({.kind = AuditKind::kKpng,
                .severity = AuditSeverity::kWarning,
                .owner = Owner::kKpng,
                .message = "kpng proxies this node's services; the project is retired",
                .details = proxy.evidence,
                .remedy = "Move to kube-proxy 1.25 or later."});
  }
  if (proxy.may_be_kpng) {
    add({.kind = AuditKind::kKpng,
         .owner = Owner::kKpng,
         .message = "there is no KUBE-PROXY-CANARY: this may be kpng, or a kube-proxy that has "
                    "not finished its first sync"});
  }
  add({.kind = AuditKind::kKubeProxy,
       .owner = OwnerOf(proxy),
       .message = absl::StrCat("kube-proxy in ", KubeProxyModeName(proxy.mode), " mode, ",
                               GenerationText(proxy)),
       .details = proxy.evidence,
       .consequence = proxy.KeepsMarkMasq() ? "It makes KUBE-MARK-MASQ and KUBE-POSTROUTING itself."
                                            : "It makes none of the chains that kubelet made."});
}

// kube-proxy's jumps to `chain`.
AuditFinding AboutUse(FamilyAudit& audit, AuditKind kind, absl::string_view chain) {
  const AuditFinding& use = audit.uses[std::string(chain)].by_kube_proxy;
  AuditFinding finding =
      audit.Here({.kind = kind,
                  .chain = std::string(chain),
                  .owner = OwnerOf(audit.proxy),
                  .message = absl::StrCat("leftover rules of kube-proxy jump to ", chain),
                  .rules = use.rules,
                  .count = use.count});
  if (audit.findings.counted) finding.packets = use.packets.value_or(0);
  return finding;
}

void AddMarkDrop(FamilyAudit& audit) {
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkDrop, kMarkDropPlace);
  const bool used = finding.count != 0;
  if (audit.proxy.MayUseMarkDrop()) {
    finding.severity = used ? AuditSeverity::kError : AuditSeverity::kWarning;
    finding.message =
        absl::StrCat(ProxyText(audit.proxy), " drops packets by ", kMarkDropPlace,
                     ", which only kubelet fills", used ? "" : "; no current service needs it");
    finding.consequence = absl::StrCat(
        WhenChanged(audit.findings.options),
        FutureOf(kMarkDropPlace, audit.proxy, audit.findings.options) == ChainFuture::kGone
            ? "after the next reboot or flush the chain is missing, the kernel refuses "
              "kube-proxy's whole nat table, and no service works."
            : "after the next reboot or flush the chain is empty. Packets that load balancer "
              "source ranges exclude, or that have no local endpoint, are let through.");
    finding.remedy = "Upgrade kube-proxy to 1.25 or later first.";
  }
  if (used || audit.proxy.MayUseMarkDrop()) audit.findings.AddSum(std::move(finding));
}

void AddMarkMasq(FamilyAudit& audit) {
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkMasq, kMarkMasqPlace);
  if (finding.count == 0) return;
  if (audit.proxy.KeepsMarkMasq()) {
    finding.message = absl::StrCat("kube-proxy's own rules jump to ", kMarkMasqPlace,
                                   ", which it makes itself; no action is needed");
  }
  audit.findings.AddSum(std::move(finding));
}

// ---- kubelet's probe ----

bool HasKubelet(const FamilyChains& chains) {
  return chains.HasAnywhere(kCanaryChain) || chains.Has("mangle", kHintChain);
}

// Only nft writes such rules of kube-proxy's, and copies of kubelet's.
bool LoadedByNft(const netlink::TableId& table, const std::string& chain, const SurveyRule& rule) {
  const std::optional<netlink::ChainId> id = KnownChainId(table, chain);
  return id && (IsKubeProxyChain(*id) || RecognizeCopy(*id, rule));
}

// One finding for each table that an iptables-nft cannot list.
void AuditListable(const FamilyAudit& audit) {
  for (const auto& [table, chains] : audit.chains.survey().tables) {
    if (table.family != audit.chains.name() || !IsIptablesTable(table)) continue;
    const auto add = [&audit, &table = table](bool loaded, const auto& add_to) {
      AuditFinding finding = audit.Here(FindingOf(advice::kIncompatible));
      finding.chain = absl::StrCat(table.name, "/*");
      if (loaded) {
        finding.severity = AuditSeverity::kError;
        finding.message = advice::kLoadedByNft;
        finding.remedy = advice::kLoadedRemedy;
      }
      add_to(std::move(finding));
    };
    bool loaded = false;
    std::vector<AuditedRule> rules;
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        if (!rule.unlistable) continue;
        loaded |= LoadedByNft(table, name, rule);
        rules.push_back(Audited(table, name, rule));
      }
    }
    for (AuditedRule& rule : rules) {
      add(loaded, [&](AuditFinding finding) {
        audit.findings.AddRule(std::move(finding), std::move(rule));
      });
    }
    if (rules.empty() || audit.left_out == nullptr) continue;
    const auto more = audit.left_out->unlistable.find({table.family, table.name});
    if (more == audit.left_out->unlistable.end()) continue;
    add(loaded,
        [&](AuditFinding finding) { audit.findings.AddLeftOut(std::move(finding), more->second); });
  }
}

// One finding for each base chain into which iptables inserts no rule.
void AuditHooks(const FamilyAudit& audit) {
  for (const auto& [table, chains] : audit.chains.survey().tables) {
    if (table.family != audit.chains.name() || !IsIptablesTable(table)) continue;
    for (const auto& [name, chain] : chains) {
      const std::optional<netlink::ChainHook> own = netlink::HookOfIptables(table.name, name);
      if (!own || !chain.hook || *chain.hook == *own) continue;
      AuditFinding finding = audit.Here(FindingOf(advice::kOtherHook));
      finding.chain = absl::StrCat(table.name, "/", name);
      audit.findings.AddDetail(std::move(finding), absl::StrCat("priority ", chain.hook->priority,
                                                                ", of iptables ", own->priority));
    }
  }
}

}  // namespace

void AuditChains(FamilyAudit& audit) {
  for (const MarkChain& mark : kMarkChains) AuditMarkChain(audit, mark);
  if (audit.proxy.mode != KubeProxyMode::kNone) AddMode(audit);
  AddMarkDrop(audit);
  AddMarkMasq(audit);
}

void AuditProbe(const NodeView& view, const std::vector<FamilyAudit>& families,
                FindingCollector& findings) {
  // kubelet runs in the node's own namespace.
  if (!view.name.empty()) return;
  const auto in_mode = [&](absl::string_view mode) {
    return absl::c_any_of(families, [&](const FamilyAudit& audit) {
      return audit.chains.survey().mode == mode && HasKubelet(audit.chains);
    });
  };
  // There, kubelet asks iptables-legacy.
  const bool stays_legacy =
      in_mode("legacy") && !in_mode("nft") && findings.options.change != NodeChange::kIptablesNft;
  for (const FamilyAudit& audit : families) {
    if (stays_legacy) break;
    AuditListable(audit);
    AuditHooks(audit);
    for (const SurveyRule& rule : audit.chains.Rules("nat", "POSTROUTING")) {
      if (!rule.unlistable) continue;
      AuditFinding finding = audit.Here(FindingOf(advice::kProbeRule));
      finding.chain = "nat/POSTROUTING";
      findings.AddRule(std::move(finding), Audited(audit.chains.Id("nat"), "POSTROUTING", rule));
    }
  }
  if (!view.facts.lock_holder.empty()) {
    findings.AddDetail(FindingOf(advice::kProbeLock), view.facts.lock_holder, "lock");
  }
  const std::vector<netlink::Family>& of_node = findings.options.families;
  const bool needed = view.facts.no_nat != "table nat, IPv6" || of_node.empty() ||
                      absl::c_linear_search(of_node, netlink::Family::kIPv6);
  if (!view.facts.no_nat.empty() && needed) {
    findings.AddDetail(FindingOf(advice::kProbeModule), view.facts.no_nat, "module");
  }
  // kubelet has a canary wherever it keeps chains; with the gate off, this agent makes one as well.
  if (of_node.size() != netlink::kFamilies.size() || findings.options.mode == Mode::kLegacy) return;
  for (const netlink::Family family : netlink::kFamilies) {
    const auto any = [&](bool own, const auto& has) {
      return absl::c_any_of(families, [&](const FamilyAudit& audit) {
        return (audit.chains.family() == family) == own && has(audit.chains);
      });
    };
    const bool other =
        any(false, [](const auto& chains) { return chains.HasAnywhere(kCanaryChain); });
    if (!other || any(true, HasKubelet)) continue;
    AuditFinding finding = FindingOf(advice::kSkipped);
    finding.family = std::string(netlink::FamilyName(family));
    if (family == netlink::Family::kIPv6) finding.severity = AuditSeverity::kWarning;
    findings.AddSum(std::move(finding));
  }
}

}  // namespace kipt::agent
