// SPDX-License-Identifier: Apache-2.0
//
// Rules that use kubelet's chains or their mark bits.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/audit_advice.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/rule_words.h"

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

void CountKubeProxy(const std::string& chain, const SurveyRule& rule, size_t max_examples,
                    ChainUse& use) {
  ++use.by_kube_proxy;
  use.kube_proxy_packets += rule.counters.packets;
  if (use.kube_proxy_examples.size() < max_examples) {
    use.kube_proxy_examples.push_back(
        {.chain = chain, .text = rule.text, .packets = rule.counters.packets});
  }
}

void AddUser(const std::string& chain, const SurveyRule& rule, const std::string& used, Owner owner,
             const FamilyAudit& audit, const AuditOptions& options, FindingCollector& findings) {
  const bool is_private = FutureOf(used, audit.proxy) == ChainFuture::kPrivate;
  const FindingKey key = {.kind = is_private ? AuditKind::kPrivateChainUser : AuditKind::kChainUser,
                          .iptables_mode = audit.proxy.iptables_mode,
                          .family = audit.chains.name(),
                          .chain = used,
                          .owner = owner,
                          .variant = std::string(ChainGroup(chain))};
  findings.AddRule(key, chain, rule, audit.counted, [&](AuditFinding& finding) {
    finding.severity = SeverityOfUse(used, audit.proxy);
    finding.message =
        owner == Owner::kUnknown
            ? absl::StrCat("rules in ", ChainGroup(chain),
                           is_private ? ", not this agent's" : ", not Kubernetes' own",
                           ", jump to ", used)
            : absl::StrCat("rules of ", OwnerName(owner), " jump to ", used);
    finding.consequence = ConsequenceForUsers(used, audit.proxy, options.mode);
    finding.remedy = RemedyForUsers(used, owner);
  });
}

void AddForeign(const std::string& used, const std::string& chain, const SurveyRule& rule,
                Owner owner, const FamilyAudit& audit, FindingCollector& findings) {
  const FindingKey key = {.kind = AuditKind::kForeignRule,
                          .iptables_mode = audit.proxy.iptables_mode,
                          .family = audit.chains.name(),
                          .chain = used,
                          .owner = owner};
  findings.AddRule(key, chain, rule, audit.counted, [&](AuditFinding& finding) {
    // kube-proxy flushes these on its syncs, with whatever others put there.
    const bool flushed = FutureOf(used, audit.proxy) == ChainFuture::kKeptByProxy;
    finding.severity = AuditSeverity::kWarning;
    const bool is_private = FutureOf(used, audit.proxy) == ChainFuture::kPrivate;
    finding.message = absl::StrCat("rules that are not ",
                                   is_private ? "this agent's" : "Kubernetes'", " stand in ", used);
    finding.consequence =
        flushed ? absl::StrCat(ProxyText(audit.proxy), " removes them on its next sync.") : "";
    finding.remedy = "Put them into a chain of their own.";
  });
}

void AuditRule(const TableId& table, const std::string& name, const SurveyChain& chain,
               const SurveyRule& rule, FamilyAudit& audit, const AuditOptions& options,
               FindingCollector& findings) {
  const Owner of_chain = chain.base ? Owner::kBaseChain : OwnerOfChain(table, name);
  const Owner of_jump = rule.jump.empty() ? Owner::kUnknown : OwnerOfChain(table, rule.jump);
  const bool uses = IsKubeletsOrOurs(of_jump);
  if (!uses && !IsKubeletsOrOurs(of_chain)) return;
  const std::string used = absl::StrCat(table.name, "/", rule.jump);
  // Of tens of thousands of rules nearly all are in kube-proxy's own chains: told by those alone.
  if (of_jump == Owner::kKubelet && of_chain != Owner::kBaseChain && of_chain != Owner::kKubelet &&
      IsKubernetes(of_chain)) {
    return CountKubeProxy(name, rule, options.max_examples, audit.uses[used]);
  }
  const Owner owner = OwnerOfRule(table, name, chain.base, rule, ParseRuleWords(rule.text));
  // Of the private chains kubelet and kube-proxy know nothing: it is somebody's who meant it.
  if (owner == Owner::kThisAgent || (IsKubernetes(owner) && of_jump != Owner::kThisAgent)) return;
  if (uses) {
    ChainUse& use = audit.uses[used];
    ++use.by_others;
    use.packets += rule.counters.packets;
    AddUser(name, rule, used, owner, audit, options, findings);
  } else {
    AddForeign(absl::StrCat(table.name, "/", name), name, rule, owner, audit, findings);
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
  const uint32_t set = mark.rule.marks_set;
  // It sets nothing but our bit: it wants what the bit stands for.
  const bool meant = (set & ~(masquerade | drop)) == 0;
  const std::string chain = (set & masquerade) != 0 ? "nat/KUBE-POSTROUTING" : "nat/KUBE-MARK-DROP";
  const FindingKey key = {.kind = AuditKind::kMarkBitSet,
                          .iptables_mode = survey.mode,
                          .family = mark.table.family,
                          .chain = chain,
                          .owner = mark.owner,
                          .variant = absl::StrCat(mark.table.name, " ", absl::Hex(set))};
  findings.AddRule(key, mark.chain, mark.rule, mark.counted, [&](AuditFinding& finding) {
    const std::string bits = absl::StrCat("0x", absl::Hex(set & (masquerade | drop)));
    if (set == kEveryBit) {
      finding.message = absl::StrCat("rules of table ", mark.table.name, " may set any mark bit, ",
                                     bits, " among them");
      return;
    }
    finding.severity = AuditSeverity::kWarning;
    finding.message = absl::StrCat("rules of table ", mark.table.name, " set mark bit ", bits,
                                   " without our chains");
    if (!meant || audit == nullptr) {
      finding.remedy = "Keep other programs' marks off the bits of kubelet and kube-proxy.";
      return;
    }
    finding.severity = SeverityOfUse(chain, audit->proxy);
    finding.consequence =
        finding.severity == AuditSeverity::kWarning
            ? ConsequenceForUsers(chain, audit->proxy, options.mode)
            : absl::StrCat(WhenGateIsOn(options.mode), "nothing acts on this bit from the next ",
                           "reboot or flush on: their packets are no longer ",
                           (set & masquerade) != 0 ? "masqueraded." : "dropped.");
    finding.remedy = RemedyForUsers(chain, mark.owner);
  });
}

void AddTester(const MarkRule& mark, uint32_t ours, const netlink::Survey& survey,
               FindingCollector& findings) {
  const uint32_t tested = mark.rule.marks_tested;
  const FindingKey key = {.kind = AuditKind::kMarkBitTested,
                          .iptables_mode = survey.mode,
                          .family = mark.table.family,
                          .owner = mark.owner,
                          .variant = absl::StrCat(mark.table.name, " ", absl::Hex(tested))};
  findings.AddRule(key, mark.chain, mark.rule, mark.counted, [&](AuditFinding& finding) {
    if (tested == kEveryBit) {
      finding.message = absl::StrCat("rules of table ", mark.table.name,
                                     " compare the whole packet mark, our bits included");
      return;
    }
    finding.severity = AuditSeverity::kWarning;
    finding.message = absl::StrCat("rules of table ", mark.table.name, " react to mark bit 0x",
                                   absl::Hex(tested & ours), ", which kubelet's chains set");
    finding.consequence = "They see it only while something sets the bit.";
    finding.remedy = "Match what is wanted itself, or a mark bit of your own.";
  });
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
        if (((rule.marks_set | rule.marks_tested) & (masquerade | drop)) == 0) continue;
        const Owner owner = OwnerOfRule(table, name, chain.base, rule, ParseRuleWords(rule.text));
        if (IsKubernetes(owner) || owner == Owner::kThisAgent) continue;
        const MarkRule mark = {table, name, rule, owner, counted};
        if ((rule.marks_set & (masquerade | drop)) != 0) {
          AddSetter(mark, Of(families, table.family), masquerade, drop, survey, options, findings);
        }
        if ((rule.marks_tested & (masquerade | drop)) != 0) {
          AddTester(mark, masquerade | drop, survey, findings);
        }
      }
    }
  }
}

}  // namespace kipt::agent
