// SPDX-License-Identifier: Apache-2.0
//
// Rules that use kubelet's chains or their mark bits.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;
using netlink::TableId;

AuditSeverity SeverityOfUse(absl::string_view chain, const KubeProxyFacts& proxy) {
  switch (FutureOf(chain, proxy)) {
    case ChainFuture::kKept:
    case ChainFuture::kKeptByProxy:
    case ChainFuture::kPrivate:
      return AuditSeverity::kWarning;
    case ChainFuture::kEmpty:
    case ChainFuture::kGone:
      break;
  }
  return AuditSeverity::kError;
}

AuditedRule Audited(const TableId& table, const std::string& chain, const SurveyRule& rule) {
  return {.chain = chain, .text = ToString(table, rule), .packets = rule.counters.packets};
}

void AddUser(const AuditedRule& rule, const std::string& used, Owner owner,
             const FamilyAudit& audit, const AuditOptions& options, FindingCollector& findings) {
  const std::string group(ChainGroup(rule.chain));
  const bool is_private = FutureOf(used, audit.proxy) == ChainFuture::kPrivate;
  const std::string message =
      owner == Owner::kUnknown
          ? absl::StrCat("rules in ", group,
                         is_private ? ", not this agent's" : ", not Kubernetes' own", ", jump to ",
                         used)
          : absl::StrCat("rules of ", OwnerName(owner), " jump to ", used);
  findings.AddRule({.kind = is_private ? AuditKind::kPrivateChainUser : AuditKind::kChainUser,
                    .severity = SeverityOfUse(used, audit.proxy),
                    .iptables_mode = audit.proxy.iptables_mode,
                    .family = audit.chains.name(),
                    .chain = used,
                    .owner = owner,
                    .message = message,
                    .consequence = ConsequenceForUsers(used, audit.proxy, options.mode),
                    .remedy = RemedyForUsers(used, owner)},
                   rule, audit.counted, group);
}

void AddForeign(const AuditedRule& rule, const std::string& used, Owner owner,
                const FamilyAudit& audit, FindingCollector& findings) {
  const ChainFuture future = FutureOf(used, audit.proxy);
  const absl::string_view whose = future == ChainFuture::kPrivate ? "this agent's" : "Kubernetes'";
  // kube-proxy flushes these on its syncs, with whatever others put there.
  const std::string flushed =
      future == ChainFuture::kKeptByProxy
          ? absl::StrCat(ProxyText(audit.proxy), " removes them on its next sync.")
          : "";
  findings.AddRule({.kind = AuditKind::kForeignRule,
                    .severity = AuditSeverity::kWarning,
                    .iptables_mode = audit.proxy.iptables_mode,
                    .family = audit.chains.name(),
                    .chain = used,
                    .owner = owner,
                    .message = absl::StrCat("rules that are not ", whose, " stand in ", used),
                    .consequence = flushed,
                    .remedy = "Put them into a chain of their own."},
                   rule, audit.counted);
}

void AuditRule(const TableId& table, const std::string& name, const SurveyChain& chain,
               const SurveyRule& rule, FamilyAudit& audit, const AuditOptions& options,
               FindingCollector& findings) {
  const Owner of_chain = chain.base ? Owner::kBaseChain : OwnerOfChain(table, name);
  const absl::string_view jump = JumpOf(rule);
  const Owner of_jump = jump.empty() ? Owner::kUnknown : OwnerOfChain(table, jump);
  const bool uses = IsKubeletsOrOurs(of_jump);
  if (!uses && !IsKubeletsOrOurs(of_chain)) return;
  const std::string used = absl::StrCat(table.name, "/", jump);
  // Of tens of thousands of rules nearly all are in kube-proxy's own chains: told by those alone.
  if (of_jump == Owner::kKubelet && of_chain != Owner::kBaseChain && of_chain != Owner::kKubelet &&
      IsKubernetes(of_chain)) {
    ChainUse& use = audit.uses[used];
    ++use.by_kube_proxy;
    use.kube_proxy_packets += rule.counters.packets;
    if (use.kube_proxy_examples.size() < options.max_examples) {
      use.kube_proxy_examples.push_back(Audited(table, name, rule));
    }
    return;
  }
  const Owner owner = OwnerOfRule(table, name, chain.base, rule);
  // Of the private chains kubelet and kube-proxy know nothing: it is somebody's who meant it.
  if (owner == Owner::kThisAgent || (IsKubernetes(owner) && of_jump != Owner::kThisAgent)) return;
  if (uses) {
    ++audit.uses[used].by_others;
    AddUser(Audited(table, name, rule), used, owner, audit, options, findings);
  } else {
    AddForeign(Audited(table, name, rule), absl::StrCat(table.name, "/", name), owner, audit,
               findings);
  }
}

// ---- marks ----

constexpr uint32_t kEveryBit = 0xffffffff;

const FamilyAudit* Of(const std::vector<FamilyAudit>& families, absl::string_view name) {
  for (const FamilyAudit& audit : families) {
    if (audit.chains.name() == name) return &audit;
  }
  return families.empty() ? nullptr : &families.front();
}

struct MarkRule {
  const TableId& table;
  const std::string& chain;
  const SurveyRule& rule;
  Owner owner;
  bool counted;
};

void AddSetter(const MarkRule& mark, const FamilyAudit* audit, uint32_t masquerade, uint32_t drop,
               const netlink::Survey& survey, const AuditOptions& options,
               FindingCollector& findings) {
  const uint32_t set = MarksSet(mark.rule);
  const bool masquerades = (set & masquerade) != 0;
  const std::string bits = absl::StrCat("0x", absl::Hex(set & (masquerade | drop)));
  AuditFinding finding = {.kind = AuditKind::kMarkBitSet,
                          .iptables_mode = survey.mode,
                          .family = mark.table.family,
                          .chain = masquerades ? "nat/KUBE-POSTROUTING" : "nat/KUBE-MARK-DROP",
                          .owner = mark.owner};
  if (set == kEveryBit) {
    finding.message = absl::StrCat("rules of table ", mark.table.name, " may set any mark bit, ",
                                   bits, " among them");
  } else {
    finding.severity = AuditSeverity::kWarning;
    finding.message = absl::StrCat("rules of table ", mark.table.name, " set mark bit ", bits,
                                   " without our chains");
    // It sets nothing but our bit: it wants what the bit stands for.
    const bool meant = (set & ~(masquerade | drop)) == 0;
    if (!meant || audit == nullptr) {
      finding.remedy = "Keep other programs' marks off the bits of kubelet and kube-proxy.";
    } else {
      finding.severity = SeverityOfUse(finding.chain, audit->proxy);
      finding.consequence =
          finding.severity == AuditSeverity::kWarning
              ? ConsequenceForUsers(finding.chain, audit->proxy, options.mode)
              : absl::StrCat(WhenGateIsOn(options.mode),
                             "nothing acts on this bit from the next reboot or flush on: their "
                             "packets are no longer ",
                             masquerades ? "masqueraded." : "dropped.");
      finding.remedy = RemedyForUsers(finding.chain, mark.owner);
    }
  }
  findings.AddRule(std::move(finding), Audited(mark.table, mark.chain, mark.rule), mark.counted,
                   absl::StrCat(mark.table.name, " ", absl::Hex(set)));
}

void AddTester(const MarkRule& mark, uint32_t ours, const netlink::Survey& survey,
               FindingCollector& findings) {
  const uint32_t tested = MarksTested(mark.rule);
  AuditFinding finding = {.kind = AuditKind::kMarkBitTested,
                          .iptables_mode = survey.mode,
                          .family = mark.table.family,
                          .owner = mark.owner};
  if (tested == kEveryBit) {
    finding.message = absl::StrCat("rules of table ", mark.table.name,
                                   " compare the whole packet mark, our bits included");
  } else {
    finding.severity = AuditSeverity::kWarning;
    finding.message = absl::StrCat("rules of table ", mark.table.name, " react to mark bit 0x",
                                   absl::Hex(tested & ours), ", which kubelet's chains set");
    finding.consequence = "They see it only while something sets the bit.";
    finding.remedy = "Match what is wanted itself, or a mark bit of your own.";
  }
  findings.AddRule(std::move(finding), Audited(mark.table, mark.chain, mark.rule), mark.counted,
                   absl::StrCat(mark.table.name, " ", absl::Hex(tested)));
}

}  // namespace

bool HasCounters(const netlink::Survey& survey) {
  for (const auto& [table, chains] : survey.tables) {
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        if (rule.counters.packets != 0) return true;
      }
    }
  }
  return false;
}

void AuditRules(FamilyAudit& audit, const AuditOptions& options, FindingCollector& findings) {
  for (const absl::string_view table : {"mangle", "nat", "filter"}) {
    const TableId id = audit.chains.Id(table);
    for (const auto& [name, chain] : audit.chains.In(table)) {
      for (const SurveyRule& rule : chain.rules) {
        AuditRule(id, name, chain, rule, audit, options, findings);
      }
    }
  }
}

void AuditMarks(const netlink::Survey& survey, bool counted,
                const std::vector<FamilyAudit>& families, const AuditOptions& options,
                FindingCollector& findings) {
  const uint32_t masquerade = uint32_t{1} << options.bits.masquerade;
  const uint32_t drop = uint32_t{1} << options.bits.drop;
  for (const auto& [table, chains] : survey.tables) {
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        const uint32_t ours = masquerade | drop;
        if (((MarksSet(rule) | MarksTested(rule)) & ours) == 0) continue;
        const Owner owner = OwnerOfRule(table, name, chain.base, rule);
        if (IsKubernetes(owner) || owner == Owner::kThisAgent) continue;
        const MarkRule mark = {table, name, rule, owner, counted};
        if ((MarksSet(rule) & ours) != 0) {
          AddSetter(mark, Of(families, table.family), masquerade, drop, survey, options, findings);
        }
        if ((MarksTested(rule) & ours) != 0) AddTester(mark, ours, survey, findings);
      }
    }
  }
}

}  // namespace kipt::agent
