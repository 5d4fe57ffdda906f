// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds of chains as a whole: whether KUBE-MARK-MASQ and KUBE-MARK-DROP still do
// something, and which kube-proxy, or kpng, depends on them.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kMarkMasq = "nat/KUBE-MARK-MASQ";
constexpr absl::string_view kMarkDrop = "nat/KUBE-MARK-DROP";

// ---- chains that mark without effect: packets that must be masqueraded or dropped are not ----

using netlink::SurveyChain;
using netlink::SurveyRule;

struct MarkChain {
  absl::string_view place;
  absl::string_view name;   // in table nat
  absl::string_view table;  // where what acts on the mark stands
  absl::string_view listener;
  absl::string_view listener_base;  // hangs there at least
  absl::string_view action;
  AuditKind empty;
  AuditKind unheard;
};
constexpr MarkChain kMarkChains[] = {
    {kMarkMasq, kMarkMasqChain, "nat", kPostroutingChain, "POSTROUTING", "masqueraded",
     AuditKind::kMarkMasqEmpty, AuditKind::kMarkMasqUnheard},
    {kMarkDrop, kMarkDropChain, "filter", kFirewallChain, "INPUT", "dropped",
     AuditKind::kMarkDropEmpty, AuditKind::kMarkDropUnheard},
};

// Why nothing acts on the mark that `chain` sets; empty where something does.
std::string WhyUnheard(const FamilyAudit& audit, const MarkChain& mark, const SurveyChain& chain) {
  const std::string listener = absl::StrCat(mark.table, "/", mark.listener);
  if (!audit.chains.Has(mark.table, mark.listener)) return absl::StrCat("there is no ", listener);
  if (!audit.chains.HangsOnBase(mark.table, mark.listener, mark.listener_base)) {
    return absl::StrCat("no jump from ", mark.listener_base, " leads to ", listener);
  }
  uint32_t bits = 0;
  for (const SurveyRule& rule : chain.rules) bits |= MarksSet(rule);
  bool tests = false;
  bool acts = false;
  for (const SurveyRule& rule : audit.chains.Rules(mark.table, mark.listener)) {
    const std::string target = TargetName(rule);
    const bool tests_it = (MarksTested(rule) & bits) != 0;
    tests |= tests_it;
    // Each of the drop mark's rules tests it itself; the rules of the masquerade mark follow a
    // RETURN that does.
    acts |= mark.place == kMarkMasq ? target == "MASQUERADE" || target == "SNAT"
                                    : target == "DROP" && tests_it;
  }
  return tests && acts ? "" : absl::StrCat(listener, " has no rule for that mark");
}

std::string RemedyFor(const FamilyAudit& audit, const MarkChain& mark, const ChainUse& use,
                      bool empty) {
  if (mark.place == kMarkMasq) {
    return "Masquerade in the rules themselves, or let kubelet, kube-proxy or this agent put the "
           "chain in place.";
  }
  if (use.by_kube_proxy.count != 0) {
    return "Upgrade kube-proxy to 1.25 or later; until then leave IPTablesOwnershipCleanup off, so "
           "that kubelet or this agent puts the chains in place.";
  }
  if (!empty && audit.proxy.mode == KubeProxyMode::kIptables && audit.proxy.newest == 0) {
    return "kube-proxy since 1.27 empties filter/KUBE-FIREWALL on IPv4 on each sync, the rule for "
           "the mark with it: drop in table filter instead.";
  }
  return "Drop in table filter instead.";
}

void AuditMarkChain(FamilyAudit& audit, const MarkChain& mark) {
  const SurveyChain* chain = audit.chains.Find("nat", mark.name);
  if (chain == nullptr) return;
  const ChainUse& use = audit.uses[std::string(mark.place)];
  const bool empty = chain->rules.empty();
  const std::string unheard = empty ? "" : WhyUnheard(audit, mark, *chain);
  if (!empty && (use.all() == 0 || unheard.empty())) return;
  AuditFinding finding =
      audit.About(empty ? mark.empty : mark.unheard,
                  use.all() == 0 ? AuditSeverity::kInfo : AuditSeverity::kError, mark.place);
  finding.count = use.all();
  finding.message = absl::StrCat(
      mark.place, empty ? " is empty" : " sets a mark that nothing acts on: ", unheard);
  if (use.all() == 0) {
    absl::StrAppend(&finding.message, "; no rule uses it");
  } else {
    finding.consequence = absl::StrCat("Packets of ", Counted(use.all(), "rule"), " that must be ",
                                       mark.action, " are not (fails open).");
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

void AddMode(const FamilyAudit& audit) {
  const KubeProxyFacts& proxy = audit.proxy;
  if (proxy.mode == KubeProxyMode::kLeftOver || proxy.leftovers) {
    AuditFinding left =
        audit.About(AuditKind::kKubeProxyLeftOver, AuditSeverity::kInfo, "", Owner::kKubeProxy);
    left.message =
        "chains of kube-proxy's iptables or IPVS mode stand here, and no such kube-proxy keeps "
        "them";
    left.details = proxy.evidence;
    left.remedy = "A reboot removes them, and kube-proxy --cleanup most of them.";
    audit.findings.AddSum(std::move(left));
  }
  if (proxy.mode == KubeProxyMode::kLeftOver) return;
  if (proxy.mode == KubeProxyMode::kKpng) {
    AuditFinding kpng = audit.About(AuditKind::kKpng, AuditSeverity::kWarning, "", Owner::kKpng);
    kpng.message = "kpng proxies services here; the project is retired";
    kpng.details = proxy.evidence;
    kpng.remedy = "Move to kube-proxy 1.25 or later.";
    return audit.findings.AddSum(std::move(kpng));
  }
  if (proxy.may_be_kpng) {
    AuditFinding kpng = audit.About(AuditKind::kKpng, AuditSeverity::kInfo, "", Owner::kKpng);
    kpng.message =
        "there is no KUBE-PROXY-CANARY: this may be kpng, or a kube-proxy that has not finished "
        "its first sync";
    audit.findings.AddSum(std::move(kpng));
  }
  AuditFinding mode = audit.About(AuditKind::kKubeProxy, AuditSeverity::kInfo, "", OwnerOf(proxy));
  mode.message = absl::StrCat("kube-proxy in ", KubeProxyModeName(proxy.mode), " mode, ",
                              GenerationText(proxy));
  mode.details = proxy.evidence;
  mode.consequence = proxy.KeepsMarkMasq() ? "It makes KUBE-MARK-MASQ and KUBE-POSTROUTING itself."
                                           : "It makes none of the chains that kubelet made.";
  audit.findings.AddSum(std::move(mode));
}

// A finding of kube-proxy's jumps to `chain`.
AuditFinding AboutUse(FamilyAudit& audit, AuditKind kind, absl::string_view chain) {
  const AuditFinding& use = audit.uses[std::string(chain)].by_kube_proxy;
  AuditFinding finding = audit.About(kind, AuditSeverity::kInfo, chain, OwnerOf(audit.proxy));
  finding.message = absl::StrCat("left-over rules of kube-proxy jump to ", chain);
  finding.count = use.count;
  finding.rules = use.rules;
  if (audit.findings.counted()) finding.packets = use.packets.value_or(0);
  return finding;
}

void AddMarkDrop(FamilyAudit& audit) {
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkDrop, kMarkDrop);
  const bool used = finding.count != 0;
  if (audit.proxy.MayUseMarkDrop()) {
    finding.severity = used ? AuditSeverity::kError : AuditSeverity::kWarning;
    finding.message = absl::StrCat(ProxyText(audit.proxy), " drops by ", kMarkDrop,
                                   ", which it leaves to kubelet to fill",
                                   used ? "" : "; no service of now needs it");
    finding.consequence = absl::StrCat(
        WhenGateIsOn(audit.findings.options().mode),
        FutureOf(kMarkDrop, audit.proxy) == ChainFuture::kGone
            ? "from the next reboot or flush on the chain is missing, its whole nat table is "
              "refused, and no service works."
            : "from the next reboot or flush on the chain is empty: what load balancer source "
              "ranges and missing local endpoints must keep out is let through.");
    finding.remedy = "Upgrade kube-proxy to 1.25 or later first.";
  } else if (!used) {
    return;
  }
  audit.findings.AddSum(std::move(finding));
}

void AddMarkMasq(FamilyAudit& audit) {
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkMasq, kMarkMasq);
  if (finding.count == 0) return;
  if (audit.proxy.KeepsMarkMasq()) {
    finding.message = absl::StrCat("kube-proxy's own rules jump to ", kMarkMasq,
                                   ", which it makes itself; nothing needs doing");
  }
  audit.findings.AddSum(std::move(finding));
}

}  // namespace

void AuditChains(FamilyAudit& audit) {
  for (const MarkChain& mark : kMarkChains) AuditMarkChain(audit, mark);
  if (audit.proxy.mode != KubeProxyMode::kNone) AddMode(audit);
  AddMarkDrop(audit);
  AddMarkMasq(audit);
}

}  // namespace kipt::agent
