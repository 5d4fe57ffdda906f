// SPDX-License-Identifier: Apache-2.0
//
// What a node's chains depend on and its rules do not show: CNI configurations, routing rules,
// sysctls; and what could not be read.
#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit_advice.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/rule_words.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::SurveyRule;

bool AnyHas(const std::vector<FamilyAudit>& families, absl::string_view table,
            absl::string_view chain) {
  return std::any_of(families.begin(), families.end(),
                     [&](const FamilyAudit& audit) { return audit.chains.Has(table, chain); });
}

// The kube-proxy that keeps `chain`, else the first that there is; a plugin writes to the mode that
// the node's iptables has, and that is where kube-proxy is.
const KubeProxyFacts* ProxyFor(absl::string_view chain, const std::vector<FamilyAudit>& families) {
  const KubeProxyFacts* any = nullptr;
  for (const FamilyAudit& audit : families) {
    if (FutureOf(chain, audit.proxy) == ChainFuture::kKeptByProxy) return &audit.proxy;
    if (any == nullptr || audit.proxy.mode != KubeProxyMode::kNone) any = &audit.proxy;
  }
  return any;
}

void DescribeCni(const CniReference& reference, const std::string& chain, bool exists,
                 const KubeProxyFacts& proxy, Mode mode, AuditFinding& finding) {
  finding.message = absl::StrCat("the CNI plugin ", reference.plugin, " uses ", chain);
  finding.remedy = RemedyForUsers(chain, Owner::kPortmap);
  const ChainFuture future = FutureOf(chain, proxy);
  if (future == ChainFuture::kKeptByProxy || future == ChainFuture::kEmpty) {
    const bool open = future == ChainFuture::kEmpty;
    finding.severity = open ? AuditSeverity::kError : AuditSeverity::kWarning;
    finding.consequence = ConsequenceForUsers(chain, proxy, mode);
    return;
  }
  finding.severity = AuditSeverity::kError;
  if (future == ChainFuture::kPrivate) {
    finding.severity = exists ? AuditSeverity::kWarning : AuditSeverity::kError;
    finding.consequence = ConsequenceForUsers(chain, proxy, mode);
    if (exists) return;
    finding.consequence +=
        " It does not stand: the plugin's next ADD fails, and pods with host "
        "ports do not start.";
    return;
  }
  if (mode == Mode::kCleanup && !exists) {
    finding.consequence = absl::StrCat("IPTablesOwnershipCleanup is on, and there is no ", chain,
                                       ": its next ADD will fail, and pods with host ports do not "
                                       "start.");
    return;
  }
  finding.consequence = absl::StrCat(
      WhenGateIsOn(mode),
      exists ? "the chain that stands is the last: " : "nobody makes the chain: ",
      "from the next reboot or flush on its next ADD will fail, and pods with host ports do not "
      "start.");
}

void AuditCni(const NodeView& view, const std::vector<FamilyAudit>& families,
              const AuditOptions& options, FindingCollector& findings) {
  const KubeProxyFacts no_proxy;
  for (const CniReference& reference : view.cni.references) {
    const std::string chain = absl::StrCat("nat/", reference.chain);
    // Whatever else it names is no business of kubelet's.
    const Owner owner = OwnerOfChain({.family = "ip", .name = "nat"}, reference.chain);
    if (!IsKubeletsOrOurs(owner)) continue;
    const KubeProxyFacts* proxy = ProxyFor(chain, families);
    const bool exists = AnyHas(families, "nat", reference.chain);
    findings.AddDetail({.kind = AuditKind::kCniConfig,
                        .chain = chain,
                        .owner = Owner::kPortmap,
                        .variant = reference.plugin},
                       reference.file, [&](AuditFinding& finding) {
                         DescribeCni(reference, chain, exists, proxy != nullptr ? *proxy : no_proxy,
                                     options.mode, finding);
                       });
  }
  for (const std::string& problem : view.cni.problems) {
    findings.AddDetail({.kind = AuditKind::kCniConfigUnreadable}, problem,
                       [](AuditFinding& finding) {
                         finding.severity = AuditSeverity::kWarning;
                         finding.message =
                             "CNI configurations may name chains of kubelet's that "
                             "this audit does not know of";
                         finding.remedy =
                             "Run it where it can read them (--host-root), or mend the "
                             "file.";
                       });
  }
}

// How a routing rule and our bits meet.
void AuditIpRule(const FwmarkRule& rule, const AuditOptions& options, FindingCollector& findings) {
  const uint32_t ours =
      (uint32_t{1} << options.bits.masquerade) | (uint32_t{1} << options.bits.drop);
  if ((rule.mask & ours) == 0) return;
  const bool wants = (rule.mark & rule.mask & ours) != 0;
  const std::string bits = absl::StrCat("0x", absl::Hex(rule.mask & ours));
  findings.AddDetail({.kind = AuditKind::kIpRuleFwmark,
                      .family = std::string(netlink::FamilyName(rule.family)),
                      .variant = absl::StrCat(wants, " ", bits)},
                     rule.text, [&](AuditFinding& finding) {
                       finding.severity = wants ? AuditSeverity::kWarning : AuditSeverity::kInfo;
                       finding.message = absl::StrCat("routing rules match only packets ",
                                                      wants ? "with" : "without", " mark bit ",
                                                      bits, ", which kubelet's chains set");
                       if (!wants) return;
                       finding.consequence =
                           "They route packets that are marked to be masqueraded or dropped.";
                       finding.remedy =
                           "Give one of the two other bits: --iptables-masquerade-bit and "
                           "--iptables-drop-bit (the former must be kube-proxy's too), or the mask "
                           "of the routing rule.";
                     });
}

bool IsMartianRule(const SurveyRule& rule) {
  const RuleWords words = ParseRuleWords(rule.text);
  return words.target == "DROP" && words.destination.text == "127.0.0.0/8" &&
         !words.destination.negated && words.source.negated;
}

// KUBE-FIREWALL with its rule, on INPUT, or this agent's native table.
bool DropsMartians(const FamilyAudit& audit) {
  if (audit.chains.survey().tables.count(audit.chains.Id("kube-iptables-agent")) != 0) return true;
  const netlink::SurveyChain* chain = audit.chains.Find("filter", kFirewallChain);
  return chain != nullptr && audit.chains.HangsOnBase("filter", kFirewallChain, "INPUT") &&
         std::any_of(chain->rules.begin(), chain->rules.end(), IsMartianRule);
}

void AuditRouteLocalnet(const NodeView& view, const std::vector<FamilyAudit>& families,
                        FindingCollector& findings) {
  const bool safe = std::any_of(families.begin(), families.end(), [](const FamilyAudit& audit) {
    return audit.chains.family() == netlink::Family::kIPv4 && DropsMartians(audit);
  });
  if (view.route_localnet.empty() || safe) return;
  findings.AddDetail(
      {.kind = AuditKind::kRouteLocalnetExposed, .family = "ip", .chain = "filter/KUBE-FIREWALL"},
      absl::StrCat("route_localnet: ", absl::StrJoin(view.route_localnet, ", ")),
      [](AuditFinding& finding) {
        finding.severity = AuditSeverity::kError;
        finding.message =
            "route_localnet is on, and no rule drops martian packets: neighbours "
            "reach what listens on 127.0.0.1 (CVE-2020-8558)";
        finding.remedy =
            "Let kubelet or this agent put filter/KUBE-FIREWALL in place, or set "
            "net.ipv4.conf.*.route_localnet to 0 where nothing needs it.";
      });
}

}  // namespace

void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       const AuditOptions& options, FindingCollector& findings) {
  AuditCni(view, families, options, findings);
  for (const FwmarkRule& rule : view.ip_rules) AuditIpRule(rule, options, findings);
  AuditRouteLocalnet(view, families, findings);
  for (const std::string& problem : view.problems) {
    findings.AddDetail({.kind = AuditKind::kNotSeen}, problem, [](AuditFinding& finding) {
      finding.severity = AuditSeverity::kWarning;
      finding.message =
          "something could not be read: whoever depends on kubelet's chains there is "
          "not in this report";
    });
  }
}

}  // namespace kipt::agent
