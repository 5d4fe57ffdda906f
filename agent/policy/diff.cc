// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/diff.h"

#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/jump_diff.h"
#include "agent/policy/martians.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/reach.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::Snapshot;
using netlink::Table;

using FamilyTable = std::pair<Family, Table>;

FamilyTable TableOf(const ChainId& chain) { return {chain.family, chain.table}; }

constexpr ConditionRow kConditions[] = {
    {Condition::kBaseChainNotHooked, "BaseChainNotHooked", Severity::kCritical},
    {Condition::kForeignBaseChain, "ForeignBaseChain", Severity::kCritical},
    {Condition::kDropBitConflict, "DropBitConflict", Severity::kCritical},
    {Condition::kBitConflict, "BitConflict", Severity::kWarning},
    {Condition::kOlderFormKept, "OlderFormKept", Severity::kInfo},
    {Condition::kShadowedJump, "ShadowedJump", Severity::kCritical},
    {Condition::kPerhapsShadowedJump, "PerhapsShadowedJump", Severity::kWarning},
    {Condition::kShadowedRules, "ShadowedRules", Severity::kWarning},
    {Condition::kPrecedingRule, "PrecedingRule", Severity::kInfo},
    {Condition::kDamagedRule, "DamagedRule", Severity::kCritical},
    {Condition::kForeignDropsEverything, "ForeignDropsEverything", Severity::kCritical},
    {Condition::kVoidedMark, "VoidedMark", Severity::kWarning},
    {Condition::kLegacyModeImpossible, "LegacyModeImpossible", Severity::kCritical},
    {Condition::kConnLabelsImpossible, "ConnLabelsImpossible", Severity::kWarning},
    {Condition::kNativeProtection, "NativeProtection", Severity::kInfo},
    {Condition::kTableDormant, "TableDormant", Severity::kCritical},
    {Condition::kTableIncompatible, "TableIncompatible", Severity::kWarning},
    {Condition::kWriteRefused, "WriteRefused", Severity::kCritical},
};

constexpr absl::string_view kInstallModules =
    "install the kernel modules (kernel-modules-extra on RHEL 10)";

netlink::DeleteNativeTable NativeRemoval() {
  return {.family = Family::kIPv4, .name = std::string(kNativeTable)};
}

// One run of ComputeDiff.
class Differ {
 public:
  Differ(const PolicyInput& input, const Snapshot& observed, const RuleSupport& support)
      : input_(input),
        observed_(observed),
        support_(support),
        desired_(DesiredRuleset(input, support)) {
    for (const Family family : netlink::kFamilies) {
      claimed_[family] = IsClaimedByKubeProxy(observed, family);
    }
  }

  Diff Run() {
    FindBlocked();
    for (const DesiredChain& chain : desired_.chains) {
      if (IsBlocked(chain.id)) continue;
      DiffChain(chain, observed_.Find(chain.id), input_, claimed_[chain.id.family], walk_, diff_);
    }
    for (const DesiredJump& jump : desired_.jumps) {
      if (!IsBlocked(jump.base_chain)) DiffJump(jump, observed_, walk_, diff_);
    }
    DiffDormant();
    for (const Family family : netlink::kFamilies) {
      for (const DesiredChain& known : EveryKubeletChain(family)) ListStaleChain(known);
      for (const DesiredJump& known : EveryKubeletJump(family)) ListStaleJump(known);
    }
    DiffNative();
    FindIncompatible();
    ReportConnLabels();
    ReportSupport();
    absl::c_stable_sort(diff_.changes, [](const Change& a, const Change& b) {
      return a.operation.index() < b.operation.index();
    });
    return std::move(diff_);
  }

 private:
  bool IsBlocked(const ChainId& chain) const { return blocked_.count(TableOf(chain)) != 0; }

  void Report(Condition condition, const ChainId& chain, std::string message,
              bool repaired = false) {
    diff_.findings.push_back({condition, chain, std::move(message), repaired});
  }

  // Tables in which nothing may be changed.
  void FindBlocked() {
    for (const DesiredJump& jump : desired_.jumps) {
      const ObservedChain* base = observed_.Find(jump.base_chain);
      if (base == nullptr || base->hooked) continue;
      Block(Condition::kBaseChainNotHooked, jump.base_chain,
            "exists without iptables' hook and type, which the kernel does not give it later");
    }
    for (const DesiredChain& chain : desired_.chains) {
      const ObservedChain* found = observed_.Find(chain.id);
      if (found == nullptr || !found->hooked) continue;
      Block(Condition::kForeignBaseChain, chain.id,
            "exists with a hook, as no kubelet makes it, and no rule can jump to it");
    }
    for (const Family family : input_.families) FindDropBitConflict(family);
  }

  void Block(Condition condition, const ChainId& chain, absl::string_view what) {
    blocked_.insert(TableOf(chain));
    Report(condition, chain,
           absl::StrCat("a chain ", chain.name, " ", what, "; nothing is changed in table ",
                        netlink::FamilyName(chain.family), " ", netlink::TableName(chain.table),
                        ": have its owner rename or delete it"));
  }

  // Our drop of marked packets would drop what kube-proxy marks for masquerading.
  void FindDropBitConflict(Family family) {
    if (input_.mode != Mode::kLegacy || !claimed_[family] || !KubeProxyUsesDropBit(family)) return;
    const ChainId firewall = {family, Table::kFilter, std::string(kFirewallChain)};
    blocked_.insert({TableOf(firewall), {family, Table::kNat}});
    // The rule stays, because other programs may mark packets for it that must not pass.
    const ObservedChain* chain = observed_.Find(firewall);
    const bool drops =
        chain != nullptr && absl::c_any_of(chain->rules, [&](const netlink::ObservedRule& rule) {
          return rule.rule() != nullptr && *rule.rule() == DropMarked(input_.bits.drop);
        });
    Report(Condition::kDropBitConflict, firewall,
           absl::StrCat("kube-proxy masquerades packets with mark bit ", input_.bits.drop,
                        drops ? ", and the rule of --iptables-drop-bit in KUBE-FIREWALL drops them"
                              : ", and --iptables-drop-bit would drop them",
                        "; nothing is changed in tables filter and nat of ",
                        netlink::FamilyName(family), ": choose another --iptables-drop-bit"));
  }

  // KUBE-MARK-MASQ shows it also after another program has flushed KUBE-POSTROUTING.
  bool KubeProxyUsesDropBit(Family family) const {
    const ChainId postrouting = {family, Table::kNat, std::string(kPostroutingChain)};
    const ObservedChain* chain = observed_.Find(postrouting);
    if (chain != nullptr && CompleteSetBit(postrouting, chain->rules) == input_.bits.drop) {
      return true;
    }
    chain = observed_.Find({family, Table::kNat, std::string(kMarkMasqChain)});
    return chain != nullptr && absl::c_any_of(chain->rules, [&](const netlink::ObservedRule& rule) {
             // What others mark there, and for some packets only, is no bit of kube-proxy's.
             return rule.rule() != nullptr && netlink::IsUnconditional(rule) &&
                    ((netlink::MarksSet(rule) >> input_.bits.drop) & 1) != 0;
           });
  }

  // A table is iptables' unless another process owns it, or nothing in it may be changed.
  void DiffDormant() {
    std::set<FamilyTable> seen;
    for (const DesiredJump& jump : desired_.jumps) {
      const FamilyTable table = TableOf(jump.base_chain);
      const auto dormant = observed_.dormant.find(table);
      if (dormant == observed_.dormant.end() || !seen.insert(table).second) continue;
      const netlink::WakeTable wake = {.chain = jump.base_chain, .flags = dormant->second};
      const bool owned = (wake.flags & netlink::kTableOwned) != 0;
      const bool ours = !owned && !IsBlocked(jump.base_chain);
      const std::string what = absl::StrCat("table ", netlink::FamilyName(table.first), " ",
                                            netlink::TableName(table.second),
                                            " is dormant: no packet reaches its rules");
      Report(Condition::kTableDormant, jump.base_chain,
             absl::StrCat(what, owned  ? "; another program owns it: have that program wake it"
                                : ours ? ""
                                       : "; it is woken when this table may be changed again"),
             ours);
      if (ours) diff_.changes.push_back({wake, what});
    }
  }

  void FindIncompatible() {
    UnlistableRules rules(diff_.changes);
    for (const auto& [id, chain] : observed_.chains) {
      if (!absl::c_linear_search(input_.families, id.family)) continue;
      for (const netlink::ObservedRule& rule : chain.rules) rules.Add(id, rule);
    }
    absl::c_move(rules.Findings(), std::back_inserter(diff_.findings));
  }

  // kube-proxy lives in the family, and writes some rule of the chain too.
  bool IsKubeProxys(const DesiredChain& known) {
    return claimed_[known.id.family] && absl::c_any_of(known.rules, [](const DesiredRule& rule) {
             return rule.shared_with_kube_proxy;
           });
  }

  void ListStaleChain(const DesiredChain& known) {
    const ChainId& id = known.id;
    const ObservedChain* chain = observed_.Find(id);
    const auto is_it = [&id](const DesiredChain& desired) { return desired.id == id; };
    if (chain == nullptr || chain->hooked || absl::c_any_of(desired_.chains, is_it)) return;
    const bool kube_proxys = IsKubeProxys(known);
    ListUndesired(input_, id, kube_proxys, {id, ChainText(id), absl::StrCat("; ", known.reason)},
                  diff_);
    for (const netlink::ObservedRule& rule : chain->rules) {
      ExistingItem item = {id, RuleText(id, rule), "stays with its chain"};
      const std::optional<KubeletForm> form =
          rule.rule() == nullptr ? std::nullopt : RecognizeKubeletForm(id, *rule.rule());
      const bool only_kubelets = form && !form->shared_with_kube_proxy;
      (kube_proxys && !only_kubelets ? diff_.of_kube_proxy : diff_.stale)
          .push_back(std::move(item));
    }
    for (const Damage& damage : FindDamage(id, chain->rules)) {
      Report(damage.condition, id, damage.message);
    }
    for (const Damage& damage : FindForeignDrops(id, chain->rules, walk_)) {
      Report(damage.condition, id, damage.message);
    }
  }

  void ListStaleJump(const DesiredJump& known) {
    const ChainId& id = known.base_chain;
    const ObservedChain* base = observed_.Find(id);
    if (base == nullptr || absl::c_linear_search(desired_.jumps, known)) return;
    const ChainId target = {id.family, id.table, std::get<netlink::Jump>(known.rule.target).chain};
    for (const netlink::ObservedRule& rule : base->rules) {
      if (rule.rule() == nullptr || *rule.rule() != known.rule) continue;
      const std::vector<DesiredChain> chains = EveryKubeletChain(id.family);
      const bool kube_proxys = absl::c_any_of(chains, [&](const DesiredChain& chain) {
        return chain.id == target && IsKubeProxys(chain);
      });
      ListUndesired(input_, target, kube_proxys, {id, RuleText(id, rule), ""}, diff_);
    }
  }

  void DiffNative() {
    const auto item = [](absl::string_view reason) {
      const netlink::Operation table = NativeRemoval();
      return ExistingItem{netlink::ChainOf(table), netlink::ToString(table), std::string(reason)};
    };
    if (desired_.native) {
      const std::string reason = absl::StrCat(
          "keeps neighbours from 127.0.0.1 (CVE-2020-8558) where iptables can hold no rule: ",
          support_.reason);
      if (observed_.native && !observed_.native->altered) {
        diff_.in_place.push_back(item(reason));
      } else {
        diff_.changes.push_back({netlink::PutNativeTable{*desired_.native}, reason});
      }
      return;
    }
    if (!observed_.native) return;
    // The changes put the martian rule of KUBE-FIREWALL in place, or it is there.
    const bool martian_rule_exists = input_.mode != Mode::kOff &&
                                     absl::c_linear_search(input_.families, Family::kIPv4) &&
                                     blocked_.count({Family::kIPv4, Table::kFilter}) == 0;
    if (martian_rule_exists && DropsEveryMartian(observed_, diff_.changes)) {
      diff_.changes.push_back(
          {NativeRemoval(),
           "the martian rule of KUBE-FIREWALL exists, and does the same as this table"});
      return;
    }
    diff_.stale.push_back(
        item(martian_rule_exists
                 ? "stale, kept: perhaps not every martian packet reaches the rule of KUBE-FIREWALL"
                 : "stale, kept: the martian rule of KUBE-FIREWALL does not replace it yet"));
  }

  void ReportConnLabels() {
    if (!input_.labels || input_.families.empty() || support_.all()) return;
    Report(Condition::kConnLabelsImpossible,
           {input_.families.front(), Table::kNat, std::string(kLabelMasqChain)},
           absl::StrCat("ConnLabelMarking is on, but this node has no connection labels (",
                        support_.xt ? support_.conn_labels_reason : support_.reason,
                        "): rules that need them are not made",
                        support_.xt ? ", all others are" : "", ". Turn the feature gate off, or ",
                        support_.xt ? "install the kernel module xt_connlabel" : kInstallModules));
  }

  // Reports a node on which iptables can hold no rule.
  void ReportSupport() {
    if (support_.xt || input_.mode == Mode::kOff || input_.families.empty()) return;
    const Family family = input_.families.front();
    if (input_.mode == Mode::kLegacy) {
      Report(Condition::kLegacyModeImpossible, {family, Table::kNat, std::string(kMarkMasqChain)},
             absl::StrCat("legacy mode is desired, but iptables can hold no rule on this node (",
                          support_.reason,
                          "): other programs could not jump to KUBE-MARK-MASQ or KUBE-MARK-DROP. "
                          "Turn the feature gate IPTablesOwnershipCleanup on, or ",
                          kInstallModules));
      return;
    }
    Report(Condition::kNativeProtection, {family, Table::kMangle, std::string(kHintChain)},
           absl::StrCat(
               "iptables can hold no rule on this node (", support_.reason,
               "): the martian protection is native, and ",
               input_.hint == HintPolicy::kAlways
                   ? "the hint is made anyway (--hint-policy=always)"
                   : "no hint leads other programs to iptables (--hint-policy=always makes one)"));
  }

  const PolicyInput& input_;
  const Snapshot& observed_;
  netlink::Walk walk_{observed_};
  const RuleSupport& support_;
  const Ruleset desired_;
  std::map<Family, bool> claimed_;  // by kube-proxy
  std::set<FamilyTable> blocked_;
  Diff diff_;
};

}  // namespace

absl::Span<const ConditionRow> Conditions() { return kConditions; }

absl::string_view ConditionName(Condition condition) {
  return kConditions[static_cast<size_t>(condition)].name;
}

Severity SeverityOf(Condition condition) {
  return kConditions[static_cast<size_t>(condition)].severity;
}

absl::string_view SeverityName(Severity severity) {
  constexpr std::array<absl::string_view, 3> kInOrder = {"info", "warning", "critical"};
  return kInOrder.at(static_cast<size_t>(severity));
}

bool IsNative(const ChainId& chain) {
  return chain.family == Family::kIPv4 && chain.table == Table::kFilter &&
         chain.name == kNativeTable;
}

bool Changes(const Diff& diff, Family family) {
  return absl::c_any_of(diff.changes, [&](const Change& change) {
    return netlink::ChainOf(change.operation).family == family;
  });
}

bool IsAddition(const Change& change) {
  return std::holds_alternative<netlink::AddRule>(change.operation) ||
         std::holds_alternative<netlink::CreateChain>(change.operation) ||
         std::holds_alternative<netlink::WakeTable>(change.operation);
}

std::vector<Change> Additions(absl::Span<const Change> changes) {
  // Where rules move, and what is removed, by chain and by table.
  std::set<ChainId> moving, removing;
  std::set<FamilyTable> removing_in;
  for (const Change& change : changes) {
    const auto* remove = std::get_if<netlink::DeleteRule>(&change.operation);
    if (remove == nullptr) continue;
    const ChainId& chain = remove->chain;
    removing.insert(chain);
    removing_in.emplace(chain.family, chain.table);
    if (ChangesRule<netlink::AddRule>(changes, chain, remove->rule)) moving.insert(chain);
  }
  const auto is_right_alone = [&](const Change& change) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    const auto* jump = add == nullptr ? nullptr : std::get_if<netlink::Jump>(&add->rule.target);
    if (jump != nullptr && removing.contains({chain.family, chain.table, jump->chain}))
      return false;
    if (add != nullptr) return !moving.contains(chain);
    return !std::holds_alternative<netlink::WakeTable>(change.operation) ||
           !removing_in.contains({chain.family, chain.table});
  };
  std::vector<Change> additions;
  absl::c_copy_if(changes, std::back_inserter(additions), [&](const Change& change) {
    return IsAddition(change) && is_right_alone(change);
  });
  return additions;
}

bool NeedsAttention(const Finding& finding) {
  return !finding.repaired && SeverityOf(finding.condition) != Severity::kInfo;
}

bool IsCritical(const Finding& finding) {
  return !finding.repaired && SeverityOf(finding.condition) == Severity::kCritical;
}

Diff ComputeDiff(const PolicyInput& input, const Snapshot& observed, const RuleSupport& support) {
  const auto has_xt = [](const auto& chain) {
    return absl::c_any_of(chain.second.rules,
                          [](const netlink::ObservedRule& rule) { return rule.xt; });
  };
  RuleSupport proven = support;
  proven.xt |= !support.refused && absl::c_any_of(observed.chains, has_xt);
  const std::optional<Snapshot> read = WithCopiesRead(observed);
  Diff diff = Differ(input, read ? *read : observed, proven).Run();
  diff.support_disproved = proven.xt != support.xt;
  return diff;
}

netlink::Transaction ToTransaction(absl::Span<const Change> changes, uint32_t generation,
                                   absl::Span<const Family> families) {
  netlink::Transaction transaction{
      .generation = generation,
  };
  for (const Change& change : changes) {
    const Family family = netlink::ChainOf(change.operation).family;
    if (absl::c_linear_search(families, family)) transaction.operations.push_back(change.operation);
  }
  return transaction;
}

}  // namespace kipt::agent
