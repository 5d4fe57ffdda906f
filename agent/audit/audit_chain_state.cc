// SPDX-License-Identifier: Apache-2.0
//
// Whether KUBE-MARK-MASQ and KUBE-MARK-DROP still do something: where not, everything looks in
// place, and packets that must be masqueraded or dropped are not.
#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/rule_words.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

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
  for (const SurveyRule& rule : chain.rules) bits |= rule.marks_set;
  return bits;
}

bool ActsOn(const SurveyChain& listener, uint32_t bits, bool masquerades) {
  bool tests = false;
  bool acts = false;
  for (const SurveyRule& rule : listener.rules) {
    const absl::string_view target = ParseRuleWords(rule.text).target;
    tests |= (rule.marks_tested & bits) != 0;
    // Each of the drop mark's rules tests it itself; the rules of the masquerade mark follow a
    // RETURN that does.
    acts |= masquerades ? target == "MASQUERADE" || target == "SNAT"
                        : target == "DROP" && (rule.marks_tested & bits) != 0;
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
  const FindingKey key = {.kind = empty ? mark.empty : mark.unheard,
                          .iptables_mode = audit.proxy.iptables_mode,
                          .family = audit.chains.name(),
                          .chain = name};
  AuditFinding sum;
  sum.count = users;
  findings.AddSum(key, std::move(sum), [&](AuditFinding& finding) {
    finding.severity = users == 0 ? AuditSeverity::kInfo : AuditSeverity::kError;
    finding.message =
        empty ? absl::StrCat(name, " is empty")
              : absl::StrCat(name, " sets a mark that nothing acts on: ", WhyUnheard(audit, mark));
    if (users == 0) {
      absl::StrAppend(&finding.message, "; no rule uses it");
      return;
    }
    finding.consequence = absl::StrCat("Packets of ", users, users == 1 ? " rule" : " rules",
                                       " that must be ", mark.action, " are not (fails open).");
    finding.remedy = RemedyFor(audit, mark, use->second, empty);
  });
}

}  // namespace

void AuditChainState(const FamilyAudit& audit, FindingCollector& findings) {
  AuditMarkChain(audit, kMasq, findings);
  AuditMarkChain(audit, kDrop, findings);
}

}  // namespace kipt::agent
