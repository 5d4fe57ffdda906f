// SPDX-License-Identifier: Apache-2.0
//
// PolicyInput (desired) x Snapshot (observed) -> Diff: what to change, what is in place, what is
// stale, and what is wrong that we do not touch. Pure; the only code that judges foreign rules:
//
//   * In our own chains each rule of ours is present once, in our order. Foreign rules stay. In
//     table filter, and where no packet passes them, they come after ours.
//   * In table nat what another program put above a set stays above it, and is a finding. Where
//     kube-proxy lives, what is missing is added after it.
//   * A jump of ours in a base chain exists once and is never moved: CNIs insert first too.
//   * What kube-proxy keeps, in any form, is left alone as long as it works.
//   * Rules damaged by iptables version skew (kubernetes #112477) never outlive a diff.
#ifndef KIPT_AGENT_POLICY_DIFF_H_
#define KIPT_AGENT_POLICY_DIFF_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/policy/policy.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// One step, and why it is taken.
struct Change {
  netlink::Operation operation;
  std::string reason;

  bool operator==(const Change&) const = default;
};

// Something of kubelet's that exists and stays unchanged: "-A INPUT -j KUBE-FIREWALL".
struct ExistingItem {
  netlink::ChainId chain;
  std::string text;
  std::string reason;

  bool operator==(const ExistingItem&) const = default;
};

// Kubelet's chains in the iptables mode that is not managed: leftovers of an upgrade, another image
// or a switch of the host's alternatives. Listed for people.
struct OtherMode {
  std::string iptables_mode;  // "nft" or "legacy"
  // Chains of kubelet's, of any release, in the order of ChainId.
  std::vector<netlink::ChainId> chains = {};
  // Why it could not be read; then `chains` is empty.
  std::string problem = {};

  bool operator==(const OtherMode&) const = default;
};

enum class Condition : uint8_t {
  // A plain chain has a base chain's name, so no packet comes to it. Its table is not touched.
  kBaseChainNotHooked,
  kForeignBaseChain,
  kDropBitConflict,
  // kube-proxy masquerades by another mark bit, so what others mark with ours is not masqueraded.
  kBitConflict,
  // kube-proxy keeps an older form that does the same work.
  kOlderFormKept,
  // Our jump is below a rule that no packet passes (netlink/reach.h).
  kShadowedJump,
  // Our jump is below a rule that may decide about every packet, such as one with a verdict map.
  kPerhapsShadowedJump,
  // In table nat, a foreign rule above a set that kube-proxy keeps decides first about all packets.
  kShadowedRules,
  // In table nat, a foreign rule above a set decides first about some packets.
  kPrecedingRule,
  // A rule of kubelet's lost its match, by version skew between iptables programs. Repaired in our
  // chains.
  kDamagedRule,
  // A foreign rule that drops every packet in a chain of kubelet's.
  kForeignDropsEverything,
  // A foreign rule that clears the mark which kubelet's rule above it has set.
  kVoidedMark,
  // Legacy mode is desired, and iptables can hold no rule on this node.
  kLegacyModeImpossible,
  // ConnLabelMarking is on, and the kernel lacks connlabel: what needs it is not made.
  kConnLabelsImpossible,
  // As kLegacyModeImpossible, in cleanup mode: the martian protection is in a native table.
  kNativeProtection,
  // nft: a table with a jump of ours is dormant, so no packet comes to its rules. Repaired if the
  // table is iptables'.
  kTableDormant,
  // nft: iptables cannot list a table, because a rule has an expression without an option. Repaired
  // where the rule is nft's copy of kubelet's (nft_copies.h) and its chain is not kube-proxy's.
  kTableIncompatible,
  // What is desired cannot be written although no capability is missing (IsWriteRefused). Found by
  // writing, not by a diff.
  kWriteRefused,
};
enum class Severity : uint8_t { kInfo, kWarning, kCritical };
absl::string_view SeverityName(Severity severity);  // "info", "warning", "critical"

struct ConditionRow {
  Condition condition;
  absl::string_view name;  // "BaseChainNotHooked", ...
  Severity severity;
};
// Each condition once, in the order of the enumeration.
absl::Span<const ConditionRow> Conditions();
absl::string_view ConditionName(Condition condition);
Severity SeverityOf(Condition condition);

struct Finding {
  Condition condition;
  netlink::ChainId chain;
  // What was seen, and what to do; names the rule.
  std::string message;
  // The changes of the same diff repair it.
  bool repaired = false;

  bool operator==(const Finding&) const = default;
};

struct Diff {
  // In the order in which they must be applied: that of netlink::Operation.
  std::vector<Change> changes;
  std::vector<ExistingItem> in_place;
  // Left by another mode, bit or family, and kept, as kubelet keeps it.
  std::vector<ExistingItem> stale;
  // Not desired either, but used by the kube-proxy that lives in the family, which writes it too.
  std::vector<ExistingItem> of_kube_proxy;
  std::vector<Finding> findings;
  // An existing rule disproves RuleSupport::xt being false; the diff takes that into account.
  bool support_disproved = false;

  // Nothing is to be done.
  bool empty() const { return changes.empty(); }
  bool operator==(const Diff&) const = default;
};

// Reports and logs name the native table apart from iptables' chains.
bool IsNative(const netlink::ChainId& chain);
inline bool IsNative(const Change& change) { return netlink::IsNative(change.operation); }
inline bool IsNative(const ExistingItem& item) { return IsNative(item.chain); }
template <typename Item>  // Change, ExistingItem
std::vector<Item> WithoutNative(std::vector<Item> items) {
  std::erase_if(items, [](const Item& item) { return IsNative(item); });
  return items;
}

// `observed` holds what ChainsToRead() asks for, and the native table, if it exists. What `support`
// lacks is not desired. The native table is ours alone: it is removed in the transaction that puts
// the martian rule of KUBE-FIREWALL in place, never before, not in mode off, and not while that
// rule may miss some martian packets (DropsEveryMartian).
Diff ComputeDiff(const PolicyInput& input, const netlink::Snapshot& observed,
                 const RuleSupport& support = {});

// Whether `diff` changes anything of `family`.
bool Changes(const Diff& diff, netlink::Family family);

// The changes that concern `families`, to be applied to the ruleset at `generation`.
netlink::Transaction ToTransaction(absl::Span<const Change> changes, uint32_t generation,
                                   absl::Span<const netlink::Family> families = netlink::kFamilies);

// Whether one of `changes` is an `Operation`, AddRule or DeleteRule, of the same rule in `chain`.
template <typename Operation>
bool ChangesRule(absl::Span<const Change> changes, const netlink::ChainId& chain,
                 const netlink::Rule& rule) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
    const auto* operation = std::get_if<Operation>(&change.operation);
    return operation != nullptr && operation->chain == chain && operation->rule == rule;
  });
}

// Whether a rule or chain is missing, or no packet comes to it, until `change` is made.
bool IsAddition(const Change& change);
// Those of `changes` that are right without the others: no rule in a chain in which one moves, and
// nothing that leads packets to a rule that is to be removed. Fit for Backend::ReadTorn: where it
// was wrong, a rule is there twice until the next check.
std::vector<Change> Additions(absl::Span<const Change> changes);

// A finding that is not repaired and needs an operator: the mode's promise is not kept.
bool NeedsAttention(const Finding& finding);
// It leaves rules without effect, or turns them against the node.
bool IsCritical(const Finding& finding);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_DIFF_H_
