// SPDX-License-Identifier: Apache-2.0
//
// What a node's chains depend on and its rules do not show: CNI configurations, routing rules,
// sysctls; and what could not be read.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit_parts.h"
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

// What a plugin that names `chain` has to expect; fills in the severity and the consequence.
void GradeCni(bool exists, const KubeProxyFacts& proxy, Mode mode, AuditFinding& finding) {
  const std::string& chain = finding.chain;
  const ChainFuture future = FutureOf(chain, proxy);
  const bool is_private = future == ChainFuture::kPrivate;
  finding.severity = future == ChainFuture::kKeptByProxy || (is_private && exists)
                         ? AuditSeverity::kWarning
                         : AuditSeverity::kError;
  if (future == ChainFuture::kKeptByProxy || future == ChainFuture::kEmpty || is_private) {
    finding.consequence = ConsequenceForUsers(chain, proxy, mode);
    if (is_private && !exists) {
      finding.consequence +=
          " It does not stand: the plugin's next ADD fails, and pods with host "
          "ports do not start.";
    }
    return;
  }
  const std::string expected =
      mode == Mode::kCleanup && !exists
          ? absl::StrCat("IPTablesOwnershipCleanup is on, and there is no ", chain, ": ")
          : absl::StrCat(
                WhenGateIsOn(mode),
                exists ? "the chain that stands is the last: " : "nobody makes the chain: ",
                "from the next reboot or flush on ");
  finding.consequence =
      absl::StrCat(expected, "its next ADD will fail, and pods with host ports do not start.");
}

void AuditCni(const NodeView& view, const std::vector<FamilyAudit>& families,
              const AuditOptions& options, FindingCollector& findings) {
  for (const CniReference& reference : view.cni.references) {
    // Whatever else it names is no business of kubelet's.
    const Owner owner = OwnerOfChain({.family = "ip", .name = "nat"}, reference.chain);
    if (!IsKubeletsOrOurs(owner)) continue;
    const std::string chain = absl::StrCat("nat/", reference.chain);
    AuditFinding finding = {
        .kind = AuditKind::kCniConfig,
        .chain = chain,
        .owner = Owner::kPortmap,
        .message = absl::StrCat("the CNI plugin ", reference.plugin, " uses ", chain),
        .remedy = RemedyForUsers(chain, Owner::kPortmap)};
    const KubeProxyFacts* proxy = ProxyFor(chain, families);
    GradeCni(AnyHas(families, "nat", reference.chain), proxy != nullptr ? *proxy : KubeProxyFacts(),
             options.mode, finding);
    findings.AddDetail(std::move(finding), reference.file, reference.plugin);
  }
  for (const std::string& problem : view.cni.problems) {
    findings.AddDetail(
        {.kind = AuditKind::kCniConfigUnreadable,
         .severity = AuditSeverity::kWarning,
         .message = "CNI configurations may name chains of kubelet's that this audit does not know "
                    "of",
         .remedy = "Run it where it can read them (--host-root), or mend the file."},
        problem);
  }
}

// How a routing rule and our bits meet.
void AuditIpRule(const FwmarkRule& rule, const AuditOptions& options, FindingCollector& findings) {
  const uint32_t ours =
      (uint32_t{1} << options.bits.masquerade) | (uint32_t{1} << options.bits.drop);
  if ((rule.mask & ours) == 0) return;
  const bool wants = (rule.mark & rule.mask & ours) != 0;
  const std::string bits = absl::StrCat("0x", absl::Hex(rule.mask & ours));
  AuditFinding finding = {
      .kind = AuditKind::kIpRuleFwmark,
      .family = std::string(netlink::FamilyName(rule.family)),
      .message = absl::StrCat("routing rules match only packets ", wants ? "with" : "without",
                              " mark bit ", bits, ", which kubelet's chains set")};
  if (wants) {
    finding.severity = AuditSeverity::kWarning;
    finding.consequence = "They route packets that are marked to be masqueraded or dropped.";
    finding.remedy =
        "Give one of the two other bits: --iptables-masquerade-bit and --iptables-drop-bit (the "
        "former must be kube-proxy's too), or the mask of the routing rule.";
  }
  findings.AddDetail(std::move(finding), rule.text, absl::StrCat(wants, " ", bits));
}

bool IsMartianRule(const SurveyRule& rule) {
  const netlink::Rule& matches = KnownMatches(rule);
  return TargetName(rule) == "DROP" && matches.source && matches.source->negated &&
         matches.destination == DropMartians(0).destination;
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
      {.kind = AuditKind::kRouteLocalnetExposed,
       .severity = AuditSeverity::kError,
       .family = "ip",
       .chain = "filter/KUBE-FIREWALL",
       .message = "route_localnet is on, and no rule drops martian packets: neighbours reach what "
                  "listens on 127.0.0.1 (CVE-2020-8558)",
       .remedy = "Let kubelet or this agent put filter/KUBE-FIREWALL in place, or set "
                 "net.ipv4.conf.*.route_localnet to 0 where nothing needs it."},
      absl::StrCat("route_localnet: ", absl::StrJoin(view.route_localnet, ", ")));
}

}  // namespace

void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       const AuditOptions& options, FindingCollector& findings) {
  AuditCni(view, families, options, findings);
  for (const FwmarkRule& rule : view.ip_rules) AuditIpRule(rule, options, findings);
  AuditRouteLocalnet(view, families, findings);
  for (const std::string& problem : view.problems) {
    findings.AddDetail({.kind = AuditKind::kNotSeen,
                        .severity = AuditSeverity::kWarning,
                        .message = "something could not be read: whoever depends on kubelet's "
                                   "chains there is not in this report"},
                       problem);
  }
}

}  // namespace kipt::agent
