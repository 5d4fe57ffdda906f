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

// ---- chains that mark without effect: packets that must be masqueraded or dropped are not ----

using netlink::SurveyChain;
using netlink::SurveyRule;

struct MarkChain {
  absl::string_view table;  // where what acts on the mark stands
  absl::string_view name;
  absl::string_view listener;
  absl::string_view listener_base;  // hangs there at least
  absl::string_view action;
  AuditKind empty;
  AuditKind unheard;
};
constexpr MarkChain kMasq = {"nat",
                             kMarkMasqChain,
                             kPostroutingChain,
                             "POSTROUTING",
                             "masqueraded",
                             AuditKind::kMarkMasqEmpty,
                             AuditKind::kMarkMasqUnheard};
constexpr MarkChain kDrop = {"filter",
                             kMarkDropChain,
                             kFirewallChain,
                             "INPUT",
                             "dropped",
                             AuditKind::kMarkDropEmpty,
                             AuditKind::kMarkDropUnheard};

uint32_t BitsSet(const SurveyChain& chain) {
  uint32_t bits = 0;
  for (const SurveyRule& rule : chain.rules) bits |= MarksSet(rule);
  return bits;
}

bool ActsOn(const SurveyChain& listener, uint32_t bits, bool masquerades) {
  bool tests = false;
  bool acts = false;
  for (const SurveyRule& rule : listener.rules) {
    const std::string target = TargetName(rule);
    const bool tests_it = (MarksTested(rule) & bits) != 0;
    tests |= tests_it;
    // Each of the drop mark's rules tests it itself; the rules of the masquerade mark follow a
    // RETURN that does.
    acts |= masquerades ? target == "MASQUERADE" || target == "SNAT" : target == "DROP" && tests_it;
  }
  return tests && acts;
}

std::string WhyUnheard(const FamilyAudit& audit, const MarkChain& mark) {
  const std::string listener = absl::StrCat(mark.table, "/", mark.listener);
  if (!audit.chains.Has(mark.table, mark.listener)) {
    return absl::StrCat("there is no ", listener);
  }
  if (!audit.chains.HangsOnBase(mark.table, mark.listener, mark.listener_base)) {
    return absl::StrCat("no jump from ", mark.listener_base, " leads to ", listener);
  }
  return absl::StrCat(listener, " has no rule for that mark");
}

bool IsHeard(const FamilyAudit& audit, const MarkChain& mark, uint32_t bits) {
  const SurveyChain* listener = audit.chains.Find(mark.table, mark.listener);
  return listener != nullptr &&
         audit.chains.HangsOnBase(mark.table, mark.listener, mark.listener_base) &&
         ActsOn(*listener, bits, mark.empty == AuditKind::kMarkMasqEmpty);
}

std::string RemedyFor(const FamilyAudit& audit, const MarkChain& mark, const ChainUse& use,
                      bool empty) {
  if (mark.unheard == AuditKind::kMarkMasqUnheard) {
    return "Masquerade in the rules themselves, or let kubelet, kube-proxy or this agent put the "
           "chain in place.";
  }
  if (use.by_kube_proxy != 0) {
    return "Upgrade kube-proxy to 1.25 or later; until then leave IPTablesOwnershipCleanup off, so "
           "that kubelet or this agent puts the chains in place.";
  }
  if (!empty && audit.proxy.mode == KubeProxyMode::kIptables && audit.proxy.newest == 0) {
    return "kube-proxy since 1.27 empties filter/KUBE-FIREWALL on IPv4 on each sync, the rule for "
           "the mark with it: drop in table filter instead.";
  }
  return "Drop in table filter instead.";
}

void AuditMarkChain(const FamilyAudit& audit, const MarkChain& mark, FindingCollector& findings) {
  const SurveyChain* chain = audit.chains.Find("nat", mark.name);
  if (chain == nullptr) return;
  const std::string name = absl::StrCat("nat/", mark.name);
  const auto use = audit.uses.find(name);
  const size_t users = use == audit.uses.end() ? 0 : use->second.all();
  const bool empty = chain->rules.empty();
  if (!empty && (users == 0 || IsHeard(audit, mark, BitsSet(*chain)))) return;
  AuditFinding finding = {
      .kind = empty ? mark.empty : mark.unheard,
      .severity = users == 0 ? AuditSeverity::kInfo : AuditSeverity::kError,
      .iptables_mode = audit.proxy.iptables_mode,
      .family = audit.chains.name(),
      .chain = name,
      .message = empty ? absl::StrCat(name, " is empty")
                       : absl::StrCat(
                             name, " sets a mark that nothing acts on: ", WhyUnheard(audit, mark)),
      .count = users};
  if (users == 0) {
    absl::StrAppend(&finding.message, "; no rule uses it");
  } else {
    finding.consequence = absl::StrCat("Packets of ", users, users == 1 ? " rule" : " rules",
                                       " that must be ", mark.action, " are not (fails open).");
    finding.remedy = RemedyFor(audit, mark, use->second, empty);
  }
  findings.AddSum(std::move(finding));
}

// ---- kube-proxy ----

constexpr absl::string_view kMarkMasq = "nat/KUBE-MARK-MASQ";
constexpr absl::string_view kMarkDrop = "nat/KUBE-MARK-DROP";

// A finding that needs a message yet.
AuditFinding About(const FamilyAudit& audit, AuditKind kind, Owner owner) {
  return {.kind = kind,
          .iptables_mode = audit.proxy.iptables_mode,
          .family = audit.chains.name(),
          .owner = owner};
}

Owner OwnerOf(const KubeProxyFacts& proxy) {
  if (proxy.mode == KubeProxyMode::kIpvs) return Owner::kKubeProxyIpvs;
  if (proxy.mode == KubeProxyMode::kNftables) return Owner::kKubeProxyNftables;
  return proxy.mode == KubeProxyMode::kKpng ? Owner::kKpng : Owner::kKubeProxy;
}

// The same of kube-proxy's jumps to `chain`.
AuditFinding AboutUse(const FamilyAudit& audit, AuditKind kind, absl::string_view chain,
                      const ChainUse& use) {
  AuditFinding finding = About(audit, kind, OwnerOf(audit.proxy));
  finding.chain = std::string(chain);
  finding.count = use.by_kube_proxy;
  finding.rules = use.kube_proxy_examples;
  if (audit.counted) finding.packets = use.kube_proxy_packets;
  return finding;
}

ChainUse UseOf(const FamilyAudit& audit, absl::string_view chain) {
  const auto use = audit.uses.find(std::string(chain));
  return use == audit.uses.end() ? ChainUse() : use->second;
}

void AddMode(const FamilyAudit& audit, FindingCollector& findings) {
  const KubeProxyFacts& proxy = audit.proxy;
  if (proxy.mode == KubeProxyMode::kLeftOver || proxy.leftovers) {
    AuditFinding left = About(audit, AuditKind::kKubeProxyLeftOver, Owner::kKubeProxy);
    left.message =
        "chains of kube-proxy's iptables or IPVS mode stand here, and no such kube-proxy keeps "
        "them";
    left.details = proxy.evidence;
    left.remedy = "A reboot removes them, and kube-proxy --cleanup most of them.";
    findings.AddSum(std::move(left));
  }
  if (proxy.mode == KubeProxyMode::kLeftOver) return;
  const bool is_kpng = proxy.mode == KubeProxyMode::kKpng;
  if (is_kpng || proxy.may_be_kpng) {
    AuditFinding kpng = About(audit, AuditKind::kKpng, Owner::kKpng);
    kpng.message = is_kpng ? "kpng proxies services here; the project is retired"
                           : "there is no KUBE-PROXY-CANARY: this may be kpng, or a kube-proxy "
                             "that has not finished its first sync";
    if (is_kpng) {
      kpng.severity = AuditSeverity::kWarning;
      kpng.details = proxy.evidence;
      kpng.remedy = "Move to kube-proxy 1.25 or later.";
    }
    findings.AddSum(std::move(kpng));
  }
  if (is_kpng) return;
  AuditFinding mode = About(audit, AuditKind::kKubeProxy, OwnerOf(proxy));
  mode.message = absl::StrCat("kube-proxy in ", KubeProxyModeName(proxy.mode), " mode, ",
                              GenerationText(proxy));
  mode.details = proxy.evidence;
  mode.consequence = proxy.KeepsMarkMasq() ? "It makes KUBE-MARK-MASQ and KUBE-POSTROUTING itself."
                                           : "It makes none of the chains that kubelet made.";
  findings.AddSum(std::move(mode));
}

void AddMarkDrop(const FamilyAudit& audit, const AuditOptions& options,
                 FindingCollector& findings) {
  const ChainUse use = UseOf(audit, kMarkDrop);
  const bool live = audit.proxy.MayUseMarkDrop();
  if (use.by_kube_proxy == 0 && !live) return;
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkDrop, kMarkDrop, use);
  if (!live) {
    finding.message = absl::StrCat("left-over rules of kube-proxy jump to ", kMarkDrop);
    return findings.AddSum(std::move(finding));
  }
  finding.severity = use.by_kube_proxy == 0 ? AuditSeverity::kWarning : AuditSeverity::kError;
  finding.message = absl::StrCat(ProxyText(audit.proxy), " drops by ", kMarkDrop,
                                 ", which it leaves to kubelet to fill",
                                 use.by_kube_proxy == 0 ? "; no service of now needs it" : "");
  finding.consequence = absl::StrCat(
      WhenGateIsOn(options.mode),
      FutureOf(kMarkDrop, audit.proxy) == ChainFuture::kGone
          ? "from the next reboot or flush on the chain is missing, its whole nat table is "
            "refused, and no service works."
          : "from the next reboot or flush on the chain is empty: what load balancer source "
            "ranges and missing local endpoints must keep out is let through.");
  finding.remedy = "Upgrade kube-proxy to 1.25 or later first.";
  findings.AddSum(std::move(finding));
}

void AddMarkMasq(const FamilyAudit& audit, FindingCollector& findings) {
  const ChainUse use = UseOf(audit, kMarkMasq);
  if (use.by_kube_proxy == 0) return;
  AuditFinding finding = AboutUse(audit, AuditKind::kKubeProxyUsesMarkMasq, kMarkMasq, use);
  finding.message = audit.proxy.KeepsMarkMasq()
                        ? absl::StrCat("kube-proxy's own rules jump to ", kMarkMasq,
                                       ", which it makes itself; nothing needs doing")
                        : absl::StrCat("left-over rules of kube-proxy jump to ", kMarkMasq);
  findings.AddSum(std::move(finding));
}

}  // namespace

void AuditChainState(const FamilyAudit& audit, FindingCollector& findings) {
  AuditMarkChain(audit, kMasq, findings);
  AuditMarkChain(audit, kDrop, findings);
}

void AuditKubeProxy(const FamilyAudit& audit, const AuditOptions& options,
                    FindingCollector& findings) {
  if (audit.proxy.mode != KubeProxyMode::kNone) AddMode(audit, findings);
  AddMarkDrop(audit, options, findings);
  AddMarkMasq(audit, findings);
}

}  // namespace kipt::agent
