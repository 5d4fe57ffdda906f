// SPDX-License-Identifier: Apache-2.0
//
// What the audit says of kube-proxy itself, and of kpng.
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_advice.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kMarkMasq = "nat/KUBE-MARK-MASQ";
constexpr absl::string_view kMarkDrop = "nat/KUBE-MARK-DROP";

FindingKey Key(const FamilyAudit& audit, AuditKind kind, Owner owner,
               absl::string_view chain = "") {
  return {.kind = kind,
          .iptables_mode = audit.proxy.iptables_mode,
          .family = audit.chains.name(),
          .chain = std::string(chain),
          .owner = owner};
}

Owner OwnerOf(const KubeProxyFacts& proxy) {
  switch (proxy.mode) {
    case KubeProxyMode::kIpvs:
      return Owner::kKubeProxyIpvs;
    case KubeProxyMode::kNftables:
      return Owner::kKubeProxyNftables;
    case KubeProxyMode::kKpng:
      return Owner::kKpng;
    case KubeProxyMode::kNone:
    case KubeProxyMode::kIptables:
    case KubeProxyMode::kLeftOver:
      break;
  }
  return Owner::kKubeProxy;
}

AuditFinding Sum(const FamilyAudit& audit, const ChainUse& use) {
  AuditFinding sum;
  sum.count = use.by_kube_proxy;
  sum.rules = use.kube_proxy_examples;
  if (audit.counted) sum.packets = use.kube_proxy_packets;
  return sum;
}

const ChainUse& UseOf(const FamilyAudit& audit, absl::string_view chain) {
  static const ChainUse* const kNone = new ChainUse();
  const auto use = audit.uses.find(std::string(chain));
  return use == audit.uses.end() ? *kNone : use->second;
}

void AddMode(const FamilyAudit& audit, FindingCollector& findings) {
  const KubeProxyFacts& proxy = audit.proxy;
  AuditFinding sum;
  sum.details = proxy.evidence;
  if (proxy.mode == KubeProxyMode::kLeftOver || proxy.leftovers) {
    findings.AddSum(Key(audit, AuditKind::kKubeProxyLeftOver, Owner::kKubeProxy), sum,
                    [](AuditFinding& finding) {
                      finding.message =
                          "chains of kube-proxy's iptables or IPVS mode stand here, and no such "
                          "kube-proxy keeps them";
                      finding.remedy =
                          "A reboot removes them, and kube-proxy --cleanup most of them.";
                    });
  }
  if (proxy.mode == KubeProxyMode::kLeftOver) return;
  if (proxy.mode == KubeProxyMode::kKpng || proxy.may_be_kpng) {
    findings.AddSum(Key(audit, AuditKind::kKpng, Owner::kKpng),
                    proxy.mode == KubeProxyMode::kKpng ? sum : AuditFinding(),
                    [&](AuditFinding& finding) {
                      const bool sure = proxy.mode == KubeProxyMode::kKpng;
                      finding.severity = sure ? AuditSeverity::kWarning : AuditSeverity::kInfo;
                      finding.message =
                          sure ? "kpng proxies services here; the project is retired"
                               : "there is no KUBE-PROXY-CANARY: this may be kpng, or a kube-proxy "
                                 "that has not finished its first sync";
                      finding.remedy = sure ? "Move to kube-proxy 1.25 or later." : "";
                    });
  }
  if (proxy.mode == KubeProxyMode::kKpng) return;
  findings.AddSum(Key(audit, AuditKind::kKubeProxy, OwnerOf(proxy)), sum,
                  [&](AuditFinding& finding) {
                    finding.message = absl::StrCat("kube-proxy in ", KubeProxyModeName(proxy.mode),
                                                   " mode, ", GenerationText(proxy));
                    if (proxy.KeepsMarkMasq()) {
                      finding.consequence = "It makes KUBE-MARK-MASQ and KUBE-POSTROUTING itself.";
                    } else {
                      finding.consequence = "It makes none of the chains that kubelet made.";
                    }
                  });
}

void AddMarkDrop(const FamilyAudit& audit, const AuditOptions& options,
                 FindingCollector& findings) {
  const ChainUse& use = UseOf(audit, kMarkDrop);
  const bool live = audit.proxy.MayUseMarkDrop();
  if (use.by_kube_proxy == 0 && !live) return;
  findings.AddSum(
      Key(audit, AuditKind::kKubeProxyUsesMarkDrop, OwnerOf(audit.proxy), kMarkDrop),
      Sum(audit, use), [&](AuditFinding& finding) {
        if (!live) {
          finding.message = absl::StrCat("left-over rules of kube-proxy jump to ", kMarkDrop);
          return;
        }
        const bool fails = FutureOf(kMarkDrop, audit.proxy) == ChainFuture::kGone;
        finding.severity = use.by_kube_proxy == 0 ? AuditSeverity::kWarning : AuditSeverity::kError;
        finding.message = absl::StrCat(
            ProxyText(audit.proxy), " drops by ", kMarkDrop, ", which it leaves to kubelet to fill",
            use.by_kube_proxy == 0 ? "; no service of now needs it" : "");
        finding.consequence = absl::StrCat(
            WhenGateIsOn(options.mode),
            fails
                ? "from the next reboot or flush on the chain is missing, its whole nat table is "
                  "refused, and no service works."
                : "from the next reboot or flush on the chain is empty: what load balancer source "
                  "ranges and missing local endpoints must keep out is let through.");
        finding.remedy = "Upgrade kube-proxy to 1.25 or later first.";
      });
}

void AddMarkMasq(const FamilyAudit& audit, FindingCollector& findings) {
  const ChainUse& use = UseOf(audit, kMarkMasq);
  if (use.by_kube_proxy == 0) return;
  findings.AddSum(Key(audit, AuditKind::kKubeProxyUsesMarkMasq, OwnerOf(audit.proxy), kMarkMasq),
                  Sum(audit, use), [&](AuditFinding& finding) {
                    finding.message =
                        audit.proxy.KeepsMarkMasq()
                            ? absl::StrCat("kube-proxy's own rules jump to ", kMarkMasq,
                                           ", which it makes itself; nothing needs doing")
                            : absl::StrCat("left-over rules of kube-proxy jump to ", kMarkMasq);
                  });
}

}  // namespace

void AuditKubeProxy(const FamilyAudit& audit, const AuditOptions& options,
                    FindingCollector& findings) {
  if (audit.proxy.mode != KubeProxyMode::kNone) AddMode(audit, findings);
  AddMarkDrop(audit, options, findings);
  AddMarkMasq(audit, findings);
}

}  // namespace kipt::agent
