// SPDX-License-Identifier: Apache-2.0
//
// Rules of other programs that set, test or clear our mark bits, and what becomes of them.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/mark_path.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::SurveyRule;
using netlink::TableId;

// "rules of Tailscale in table filter".
std::string Subject(Owner owner, const TableId& table) {
  return absl::StrCat("rules of ",
                      owner == Owner::kUnknown ? "" : absl::StrCat(OwnerName(owner), " in "),
                      "table ", table.name);
}

// Kubelet's chains, in these iptables, act on `bit` now.
bool IsHeard(const FamilyAudit& audit, uint32_t bit, bool masquerades) {
  const absl::string_view table = masquerades ? "nat" : "filter";
  const absl::string_view chain = masquerades ? kPostroutingChain : kFirewallChain;
  return audit.chains.HangsOnBase(table, chain) &&
         absl::c_any_of(audit.chains.Rules(table, chain),
                        [&](const SurveyRule& rule) { return (MarksTested(rule) & bit) != 0; });
}

// Completes `finding` about a rule that sets the bits `set`. `path` has the first of ours.
void DescribeSetter(uint32_t set, const MarkPath& path, bool shared, const FamilyAudit& audit,
                    AuditFinding& finding) {
  const AuditOptions& options = audit.findings.options;
  const uint32_t ours = audit.findings.marks;
  const std::string bits = HexText(set & ours);
  const std::string action = path.masquerades ? "masqueraded" : "dropped";
  finding.kind = AuditKind::kMarkBitSet;
  finding.chain = std::string(path.masquerades ? kPostroutingPlace : kMarkDropPlace);
  if (set == netlink::kAllMarks) {
    absl::StrAppend(&finding.message, " may set any mark bit, ", bits, " among them");
    return;
  }
  absl::StrAppend(&finding.message, " set mark bit ", bits, " without kubelet's chains");
  // A rule that sets only our bits is meant to have the packet masqueraded or dropped.
  if ((set & ~ours) != 0 || shared) {
    finding.severity = AuditSeverity::kWarning;
    finding.remedy = "Use mark bits that kubelet and kube-proxy do not use.";
    if (!shared) return;
    finding.consequence = absl::StrCat(
        "Rules that are not Kubernetes' own act on this bit, too: packets with it are ", action,
        ", whether Kubernetes or these rules have set it.");
    return;
  }
  finding.remedy = RemedyForUsers(finding.chain, finding.owner);
  const bool nftables =
      options.change == NodeChange::kKubeProxyNftables ||
      (audit.after.mode == KubeProxyMode::kNftables && path.bit == kNftablesMasquerade);
  if (path.masquerades && nftables) {
    finding.severity = AuditSeverity::kWarning;
    finding.consequence =
        "kube-proxy's nftables mode masquerades by the same bit, without a guarantee.";
    return;
  }
  finding.severity = SeverityOfUse(finding.chain, audit.after, options);
  if (finding.severity == AuditSeverity::kWarning) {
    finding.consequence = ConsequenceForUsers(finding.chain, audit.after, options);
  } else if (IsHeard(audit, path.bit, path.masquerades)) {
    finding.consequence = absl::StrCat(WhenChanged(options),
                                       "no rule acts on this bit after the next reboot or flush. "
                                       "Until then their packets are ",
                                       action, ", and then no longer.");
  } else {
    finding.consequence =
        absl::StrCat("No rule acts on this bit now: their packets are not ", action, ".");
  }
}

// The same for one that tests the bits `tested`. `spares`: what kube-proxy marks leaves its chain,
// as in flannel's, and kube-proxy marks it in every mode.
void DescribeTester(uint32_t tested, uint32_t ours, bool spares, AuditFinding& finding) {
  finding.kind = AuditKind::kMarkBitTested;
  if (tested == netlink::kAllMarks) {
    finding.message += " compare the whole packet mark, including kubelet's bits";
    return;
  }
  absl::StrAppend(&finding.message, " react to mark bit ", HexText(tested & ours),
                  ", which kubelet's chains set");
  if (spares) return;
  finding.severity = AuditSeverity::kWarning;
  finding.consequence = "They match only while another rule sets the bit.";
  finding.remedy = "Match the packets themselves, or a mark bit of your own.";
}

// ---- rules that clear ----

// The bits by which something on this node masquerades or drops, with those of `families` that are
// of `path`'s family.
std::vector<MarkPath> PathsOf(const NodeView& view, netlink::Family family,
                              const std::vector<FamilyAudit>& families,
                              const AuditOptions& options) {
  const auto any = [&](const auto& has) {
    return absl::c_any_of(families, [&](const FamilyAudit& audit) {
      return audit.chains.family() == family && has(audit);
    });
  };
  const auto in_mode = [&](KubeProxyMode mode) {
    return any([&](const FamilyAudit& audit) { return audit.after.mode == mode; });
  };
  // Where kubelet, or this agent, makes its chains if they are not there yet.
  const bool kubelet =
      view.name.empty() && options.mode == Mode::kLegacy &&
      (options.families.empty() || absl::c_linear_search(options.families, family));
  const bool nftables = in_mode(KubeProxyMode::kNftables);
  const bool postrouting = kubelet || any([](const FamilyAudit& audit) {
                             return audit.chains.Has("nat", kPostroutingChain);
                           });
  const uint32_t drop = uint32_t{1} << options.bits.drop;
  const bool drops = kubelet || any([&](const FamilyAudit& audit) {
                       return audit.chains.Has("nat", kMarkDropChain) &&
                              IsHeard(audit, drop, /*masquerades=*/false);
                     });
  const uint32_t masquerade =
      (postrouting ? options.MasqueradeMarks() : 0) | (nftables ? kNftablesMasquerade : 0);
  std::vector<MarkPath> paths;
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    const bool masquerades = (masquerade & bit) != 0;
    if (!masquerades && (bit != drop || !drops)) continue;
    paths.push_back({.family = family,
                     .bit = bit,
                     .masquerades = masquerades,
                     .ipvs = in_mode(KubeProxyMode::kIpvs),
                     .drops_forwarded = any([](const FamilyAudit& audit) {
                       return audit.chains.HangsOnBase("filter", kFirewallChain, "FORWARD");
                     })});
  }
  return paths;
}

// `rule` is Kubernetes': it marks packets for masquerading with the bit by which kubelet drops
// them, or drops them by the bit that is set for masquerading, in whatever iptables mode.
void AddConflict(const netlink::Survey& survey, const TableId& table, const std::string& chain,
                 const SurveyRule& rule, Owner owner, FindingCollector& findings) {
  const AuditOptions& options = findings.options;
  const bool masquerades = chain == kMarkMasqChain || table.name == kNftablesProxyTable;
  const uint32_t drop = uint32_t{1} << options.bits.drop;
  const uint32_t bits = masquerades ? MarksSet(rule) & drop
                        : chain == kFirewallChain && DropsMatches(rule)
                            ? MarksTested(rule) & options.MasqueradeMarks()
                            : 0;
  if (bits == 0) return;
  AuditFinding finding = {
      .kind = AuditKind::kMarkBitSet,
      .severity = AuditSeverity::kError,
      .iptables_mode = survey.mode,
      .family = table.family,
      .chain = "filter/KUBE-FIREWALL",
      .owner = owner,
      .message = absl::StrCat(
          Subject(owner, table), masquerades ? " set" : " drop by", " mark bit ", HexText(bits),
          masquerades ? ", by which kubelet drops" : ", which is set to masquerade"),
      .consequence = "Packets that are to be masqueraded are dropped.",
      .remedy = masquerades ? "Choose another --iptables-drop-bit than kube-proxy's masquerade bit."
                            : "Delete the rule: another kubelet, or this agent with another "
                              "--iptables-drop-bit, left it.",
      .mark_bits = bits};
  findings.AddRule(std::move(finding), Audited(table, chain, rule), table.name);
}

void AddCleared(const MarkRule& cleared, const MarkPath& path, const netlink::Survey& survey,
                FindingCollector& findings) {
  const auto& [table, chain, rule] = cleared;
  const Owner owner = OwnerOfRule(*table, *chain, survey.Find(*table, *chain)->base, *rule);
  const std::string action = path.masquerades ? "masqueraded" : "dropped";
  AuditFinding finding = {
      .kind = AuditKind::kMarkBitCleared,
      .severity = AuditSeverity::kError,
      .iptables_mode = survey.mode,
      .family = table->family,
      .chain = std::string(path.masquerades ? kPostroutingPlace : kMarkDropPlace),
      .owner = owner,
      .message = absl::StrCat(Subject(owner, *table), " clear mark bit ", HexText(path.bit),
                              " before packets are ", action, " by it"),
      .consequence =
          path.masquerades
              ? "Packets that KUBE-MARK-MASQ has marked and that match these rules leave with "
                "their own source address, and their answers are lost."
              : "Packets that KUBE-MARK-DROP has marked and that match these rules are let in "
                "(fails open).",
      .remedy =
          "Change only bits of your own: give MARK a value with a mask (--set-xmark "
          "VALUE/MASK), CONNMARK --nfmask and --ctmask, and nft `meta mark set meta mark & "
          "~MASK | VALUE`. Or mark in mangle PREROUTING or OUTPUT, before Kubernetes does.",
      .mark_bits = path.bit};
  findings.AddRule(std::move(finding), Audited(*table, *chain, *rule),
                   absl::StrCat(table->name, " ", absl::Hex(path.bit)));
}

}  // namespace

void AuditMarks(const netlink::Survey& survey, const std::vector<FamilyAudit>& families,
                FindingCollector& findings) {
  const AuditOptions& options = findings.options;
  const uint32_t ours = findings.marks;
  // By family and bit, whether others act on it.
  std::map<std::pair<netlink::Family, uint32_t>, bool> shared;
  for (const auto& [table, chains] : survey.tables) {
    const FamilyAudit& family = families[table.family == families[1].chains.name() ? 1 : 0];
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        const uint32_t set = MarksSet(rule);
        const uint32_t tested = MarksTested(rule);
        if (((set | tested) & ours) == 0) continue;
        const Owner owner = OwnerOfRule(table, name, chain.base, rule);
        if (IsKubernetes(owner)) AddConflict(survey, table, name, rule, owner, findings);
        if (IsKubernetes(owner) || owner == Owner::kThisAgent) continue;
        const bool spares = set == 0 && tested == options.MasqueradeMarks() &&
                            TargetName(rule) == "RETURN" &&
                            family.after.mode != KubeProxyMode::kNone;
        for (const bool sets : {true, false}) {
          const uint32_t bits = sets ? set : tested;
          if ((bits & ours) == 0) continue;
          AuditFinding finding = {.iptables_mode = survey.mode,
                                  .family = table.family,
                                  .owner = owner,
                                  .message = Subject(owner, table),
                                  .mark_bits = bits & ours};
          if (sets) {
            const uint32_t masquerade = set & options.MasqueradeMarks();
            const uint32_t first = masquerade != 0 ? masquerade & (~masquerade + 1) : set & ours;
            const MarkPath path = {
                .family = family.chains.family(), .bit = first, .masquerades = masquerade != 0};
            const auto [known, is_new] = shared.try_emplace({path.family, path.bit});
            if (is_new) known->second = OthersActOnMark(survey, path);
            DescribeSetter(set, path, known->second, family, finding);
          } else {
            DescribeTester(tested, ours, spares, finding);
          }
          findings.AddRule(std::move(finding), Audited(table, name, rule),
                           absl::StrCat(table.name, " ", absl::Hex(bits), spares ? " spares" : ""));
        }
      }
    }
  }
}

void AuditClearedMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings) {
  if (!findings.Collects(AuditKind::kMarkBitCleared)) return;
  // Tables of both families are of both paths.
  std::set<std::pair<const SurveyRule*, uint32_t>> seen;
  for (const netlink::Family family : netlink::kFamilies) {
    for (const MarkPath& path : PathsOf(view, family, families, findings.options)) {
      for (const netlink::Survey& survey : view.surveys) {
        const auto left_out = view.left_out.find(survey.mode);
        findings.counted =
            HasCounters(survey) || (left_out != view.left_out.end() && left_out->second.counted);
        for (const MarkRule& cleared : FindClearedMarks(survey, path)) {
          if (seen.insert({cleared.rule, path.bit}).second) {
            AddCleared(cleared, path, survey, findings);
          }
        }
      }
    }
  }
}

}  // namespace kipt::agent
