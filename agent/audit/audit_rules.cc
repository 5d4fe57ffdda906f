// SPDX-License-Identifier: Apache-2.0
//
// Rules that use kubelet's chains.
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/family_audit.h"
#include "agent/policy/nft_copies.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;
using netlink::TableId;

void AddUser(AuditedRule rule, const std::string& used, Owner owner, const FamilyAudit& audit) {
  const std::string group(ChainGroup(rule.chain));
  const bool is_private = IsPrivateChain(used);
  const std::string whose =
      owner == Owner::kUnknown
          ? absl::StrCat("in ", group, is_private ? ", not this agent's" : ", not Kubernetes' own",
                         ",")
          : absl::StrCat("of ", OwnerName(owner));
  audit.findings.AddRule(
      audit.Here({.kind = is_private ? AuditKind::kPrivateChainUser : AuditKind::kChainUser,
                  .severity = SeverityOfUse(used, audit.after, audit.findings.options),
                  .chain = used,
                  .owner = owner,
                  .message = absl::StrCat("rules ", whose, " jump to ", used),
                  .consequence = ConsequenceForUsers(used, audit.after, audit.findings.options),
                  .remedy = RemedyForUsers(used, owner)}),
      std::move(rule), group);
}

void AddForeign(AuditedRule rule, const std::string& used, Owner owner, const FamilyAudit& audit) {
  // kube-proxy flushes these chains on its syncs, with other programs' rules.
  const bool flushed =
      FutureOf(used, audit.after, audit.findings.options) == ChainFuture::kKeptByProxy;
  audit.findings.AddRule(
      audit.Here({.kind = AuditKind::kForeignRule,
                  .severity = AuditSeverity::kWarning,
                  .chain = used,
                  .owner = owner,
                  .message = absl::StrCat("rules that are not ",
                                          IsPrivateChain(used) ? "this agent's" : "Kubernetes'",
                                          " exist in ", used),
                  .consequence = flushed ? absl::StrCat(ProxyText(audit.proxy),
                                                        " removes them on its next sync.")
                                         : "",
                  .remedy = "Put them into a chain of their own."}),
      std::move(rule));
}

// nft loaded the chain to which `rule` jumps from a saved ruleset, and so the jump, too; its
// comment is lost.
bool IsCopiedJump(const TableId& table, const SurveyChain& from, const SurveyRule& rule,
                  const FamilyAudit& audit) {
  const std::optional<netlink::ChainId> to = KnownChainId(table, JumpOf(rule));
  return from.base && to && IsUnconditional(rule) && KnownMatches(rule).comment.empty() &&
         absl::c_any_of(audit.chains.Rules(table.name, to->name),
                        [&](const SurveyRule& one) { return RecognizeCopy(*to, one); });
}

void AuditRule(const TableId& table, const std::string& name, const SurveyChain& chain,
               const SurveyRule& rule, FamilyAudit& audit) {
  const Owner of_chain = OwnerOfChain(table, name, chain.base);
  const absl::string_view jump = JumpOf(rule);
  const Owner of_jump = jump.empty() ? Owner::kUnknown : OwnerOfChain(table, jump);
  const bool uses = IsKubeletsOrOurs(of_jump);
  if (!uses && !IsKubeletsOrOurs(of_chain)) return;
  const std::string used = absl::StrCat(table.name, "/", jump);
  // Nearly all of tens of thousands of rules are in kube-proxy's own chains, which name their
  // owner.
  if (of_jump == Owner::kKubelet && of_chain != Owner::kKubelet && IsKubernetes(of_chain)) {
    ++audit.uses[used].all;
    AuditFinding& use = audit.uses[used].by_kube_proxy;
    ++use.count;
    use.packets = use.packets.value_or(0) + rule.counters.packets;
    if (use.rules.size() < kMostExamples) use.rules.push_back(Audited(table, name, rule));
    return;
  }
  const Owner owner = OwnerOfRule(table, name, chain.base, rule);
  // kubelet and kube-proxy do not know the private chains.
  if (owner == Owner::kThisAgent || (IsKubernetes(owner) && of_jump != Owner::kThisAgent)) return;
  if (uses && IsCopiedJump(table, chain, rule, audit)) return;
  if (uses) {
    ++audit.uses[used].all;
    AddUser(Audited(table, name, rule), used, owner, audit);
  } else {
    AddForeign(Audited(table, name, rule), absl::StrCat(table.name, "/", name), owner, audit);
  }
}

}  // namespace

void AuditRules(FamilyAudit& audit) {
  if (audit.left_out != nullptr) {
    for (const auto& [use, rules] : audit.left_out->uses) {
      if (use.first != audit.chains.name()) continue;
      ChainUse& of_chain = audit.uses[use.second];
      of_chain.all += rules.count;
      of_chain.by_kube_proxy.count += rules.count;
      of_chain.by_kube_proxy.packets = of_chain.by_kube_proxy.packets.value_or(0) + rules.packets;
    }
  }
  for (const netlink::Table table : netlink::kTables) {
    const absl::string_view table_name = netlink::TableName(table);
    const TableId id = audit.chains.Id(table_name);
    for (const auto& [name, chain] : audit.chains.In(table_name)) {
      for (const SurveyRule& rule : chain.rules) AuditRule(id, name, chain, rule, audit);
    }
  }
}

}  // namespace kipt::agent
