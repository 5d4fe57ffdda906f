// SPDX-License-Identifier: Apache-2.0
//
// Rules that use kubelet's chains, and what becomes of them.
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"
#include "agent/policy/nft_copies.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;
using netlink::TableId;

// ---- advice ----

constexpr absl::string_view kFirewall = "filter/KUBE-FIREWALL";
constexpr absl::string_view kHint = "mangle/KUBE-IPTABLES-HINT";

// What no longer happens to a packet once `chain` does nothing.
absl::string_view LossOf(absl::string_view chain) {
  if (chain == kMarkMasqPlace || chain == kPostroutingPlace)
    return "their packets leave unmasqueraded";
  if (chain == kMarkDropPlace) return "their packets are no longer dropped";
  return "they have no effect";
}

// ---- users of chains ----

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

// kube-proxy alone changes, and all of kubelet's chains stay.
bool KeepsAll(const AuditOptions& options) {
  return options.change == NodeChange::kKubeProxyNftables && options.mode == Mode::kLegacy;
}

}  // namespace

ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy,
                     const AuditOptions& options) {
  if (IsPrivateChain(chain)) return ChainFuture::kPrivate;
  if (KeepsAll(options)) return ChainFuture::kKept;
  if (chain == kMarkMasqPlace || chain == kPostroutingPlace) {
    return proxy.KeepsMarkMasq() ? ChainFuture::kKeptByProxy : ChainFuture::kGone;
  }
  if (chain == kMarkDropPlace) {
    // Since 1.20 (IPVS mode: 1.16) kube-proxy makes sure that it exists, and writes nothing there.
    const bool makes = proxy.mode == KubeProxyMode::kIpvs || proxy.oldest >= 20;
    return proxy.MayUseMarkDrop() && makes ? ChainFuture::kEmpty : ChainFuture::kGone;
  }
  if (chain == kFirewall) {
    if (proxy.family == netlink::Family::kIPv4) return ChainFuture::kKept;
    return proxy.KeepsFirewall() ? ChainFuture::kKeptByProxy : ChainFuture::kGone;
  }
  return chain == kHint ? ChainFuture::kKept : ChainFuture::kGone;
}

AuditSeverity SeverityOfUse(absl::string_view chain, const KubeProxyFacts& proxy,
                            const AuditOptions& options) {
  const ChainFuture future = FutureOf(chain, proxy, options);
  return future == ChainFuture::kEmpty || future == ChainFuture::kGone ? AuditSeverity::kError
                                                                       : AuditSeverity::kWarning;
}

std::string WhenChanged(const AuditOptions& options) {
  if (options.change == NodeChange::kKubeProxyNftables) {
    return "Once kube-proxy is in nftables mode, ";
  }
  return options.mode == Mode::kCleanup ? "IPTablesOwnershipCleanup is on: "
                                        : "Once IPTablesOwnershipCleanup is on, ";
}

std::string ProxyText(const KubeProxyFacts& proxy) {
  return absl::StrCat("kube-proxy ", GenerationText(proxy), " (", KubeProxyModeName(proxy.mode),
                      " mode)");
}

std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy,
                                const AuditOptions& options) {
  const std::string when = WhenChanged(options);
  switch (FutureOf(chain, proxy, options)) {
    case ChainFuture::kKept:
      if (KeepsAll(options)) {
        return absl::StrCat("kubelet, or this agent in its place, keeps ", chain,
                            " while IPTablesOwnershipCleanup is off. kubelet 1.28 and later "
                            "cannot turn it off.");
      }
      return absl::StrCat(
          when, chain, " stays",
          chain == kFirewall ? ", but drops only martian packets, none by mark." : ".");
    case ChainFuture::kKeptByProxy:
      return absl::StrCat(when, ProxyText(proxy), " still writes ", chain,
                          ". These rules work for as long as it does, without a guarantee.");
    case ChainFuture::kEmpty:
      return absl::StrCat(when, ProxyText(proxy), " keeps ", chain,
                          ", but leaves it empty: ", LossOf(chain),
                          " (fails open) after the next reboot or flush.");
    case ChainFuture::kGone:
      return absl::StrCat(when, "no program makes ", chain,
                          ": after the next reboot or flush, adding such a rule fails, and ",
                          LossOf(chain), ".");
    case ChainFuture::kPrivate:
      return absl::StrCat(chain,
                          " is private: this agent makes it for kubelet alone, while the feature "
                          "gate ConnLabelMarking (alpha) is on. Any release may change its rules "
                          "and its label, or remove it with the gate.");
  }
  return "";
}

std::string RemedyForUsers(absl::string_view chain, Owner owner) {
  const bool is_private = IsPrivateChain(chain);
  if (is_private && owner != Owner::kPortmap) {
    return "Make two chains of your own with a label of your own: one sets it (-m connlabel "
           "--label N --set), one acts on it. Or masquerade and drop in the rules themselves.";
  }
  if (is_private || chain == kMarkMasqPlace || chain == kPostroutingPlace) {
    if (owner == Owner::kPortmap) {
      return "Remove externalSetMarkChain from the CNI configuration: portmap then marks in a "
             "chain of its own (CNI-HOSTPORT-SETMARK). Pods with host ports change over when they "
             "are recreated.";
    }
    if (owner == Owner::kHostPorts) {
      return "Upgrade CRI-O to 1.27 or later, which masquerades host ports by chains of its own; a "
             "reboot removes what dockershim left.";
    }
    return "Masquerade in the rules themselves: the same match with -j MASQUERADE in a chain that "
           "nat POSTROUTING jumps to. If only the DNAT rule can match the packets, set a mark bit "
           "of your own there, and masquerade that mark in POSTROUTING.";
  }
  if (chain == kMarkDropPlace) {
    return "Drop in table filter: the same match with -j DROP in a chain of your own that INPUT, "
           "OUTPUT or FORWARD jump to. If DNAT has already changed the packet, match its original "
           "destination with -m conntrack --ctorigdst.";
  }
  if (chain == kFirewall) return "Filter in a chain of your own that INPUT and OUTPUT jump to.";
  return "Rely on mangle/KUBE-IPTABLES-HINT alone, and only on its existence.";
}

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
