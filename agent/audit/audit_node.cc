// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds beyond rules: CNI configurations, routing rules, sysctls; and what could not
// be read.
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/family_audit.h"

namespace kipt::agent {
namespace {

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
  const uint32_t ours = findings.marks;
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

void AuditRouteLocalnet(const NodeView& view, FindingCollector& findings) {
  if (view.route_localnet.empty() || view.martians_dropped) return;
  findings.AddDetail(
      {.kind = AuditKind::kRouteLocalnetExposed,
       .severity = AuditSeverity::kError,
       .family = "ip",
       .chain = "filter/KUBE-FIREWALL",
       .message = absl::StrCat(view.route_localnet.interfaces.empty()
                                   ? "route_localnet may be on, because it cannot be "
                                     "read"
                                   : "route_localnet is on",
                               ", and no rule drops all martian packets: neighbours "
                               "reach what listens on 127.0.0.1 (CVE-2020-8558)"),
       .remedy = "Let kubelet or this agent make filter/KUBE-FIREWALL, or set "
                 "net.ipv4.conf.*.route_localnet to 0 where no program needs it."},
      ToString(view.route_localnet));
}

}  // namespace

void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings) {
  AuditCni(view, families, findings);
  for (const FwmarkRule& rule : view.ip_rules) AuditIpRule(rule, findings);
  AuditDeviceMarks(view, families, findings);
  AuditRouteLocalnet(view, findings);
  std::vector<std::string> hidden = view.hidden;
  if (!view.cni.hidden.empty()) {
    hidden.push_back(absl::StrCat("CNI configurations: ", absl::StrJoin(view.cni.hidden, ", ")));
  }
  for (const std::string& files : hidden) {
    findings.AddDetail({.kind = AuditKind::kNotSeen,
                        .severity = AuditSeverity::kInfo,
                        .message = "folders of the node are not mounted in this pod: what they "
                                   "hold is missing from this report"},
                       files, "hidden");
  }
  for (const std::string& problem : view.problems) {
    findings.AddDetail({.kind = AuditKind::kNotSeen,
                        .severity = AuditSeverity::kWarning,
                        .message = "a source could not be read: dependents of kubelet's chains "
                                   "there are missing from this report"},
                       problem);
  }
}

}  // namespace kipt::agent
