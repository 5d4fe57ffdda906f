// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <bit>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/kube_proxy_chains.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::SurveyRule;
using netlink::TableId;

// More than a person reads.
constexpr uint64_t kExamples = 4;

// Since 1.29; family ip and ip6.
constexpr char kKubeProxyTable[] = "kube-proxy";

// Nothing for a table that iptables does not share.
std::optional<ChainId> ChainIn(const TableId& table, const std::string& chain) {
  for (const Family family : netlink::kFamilies) {
    if (table.family != netlink::FamilyName(family)) continue;
    for (const netlink::Table known : netlink::kTables) {
      if (table.name == netlink::TableName(known)) return ChainId{family, known, chain};
    }
  }
  return std::nullopt;
}

// The chain that `rule` of `table` jumps to, as above.
std::optional<ChainId> TargetIn(const TableId& table, const SurveyRule& rule) {
  const std::string* jump = JumpTarget(rule);
  return jump != nullptr ? ChainIn(table, *jump) : std::nullopt;
}

// The rule that makes a marking chain one, whoever of kubelet and kube-proxy wrote it, and the one
// that clears the mark; with any bit.
bool IsOwnMarking(const ChainId& chain, const SurveyRule& rule) {
  const uint32_t marks = MarksSet(rule);
  if (chain.table != netlink::Table::kNat || rule.rule() == nullptr || std::popcount(marks) != 1) {
    return false;
  }
  const int bit = std::countr_zero(marks);
  if (chain.name == kMarkMasqChain || chain.name == kMarkDropChain) {
    return *rule.rule() == SetBit(bit);
  }
  return chain.name == kPostroutingChain && *rule.rule() == ClearBit(bit);
}

// The same of labels, with any label: in these two chains, and in no other of kubelet's.
bool IsOwnLabelling(const ChainId& chain, const SurveyRule& rule) {
  return chain.table == netlink::Table::kNat &&
         (chain.name == kLabelMasqChain || chain.name == kLabelDropChain) &&
         rule.rule() != nullptr && rule.rule()->conn_label &&
         *rule.rule() == SetLabel(rule.rule()->conn_label->label);
}

std::string SpelledRule(const TableId& table, const std::string& chain, const SurveyRule& rule) {
  return absl::StrCat("-A ", chain, " ", ToString(table, rule));
}

Marking MarkingOf(const TableId& table, const std::string& chain, const SurveyRule& rule,
                  uint32_t bits, const netlink::ConnLabelSet& labels) {
  return {.from = absl::StrCat(netlink::ToString(table), " ", chain),
          .rule = SpelledRule(table, chain, rule),
          .bits = bits,
          .labels = labels,
          .ipv4 = table.family != "ip6",
          .ipv6 = table.family != "ip"};
}

// Another example of what is known adds nothing to anybody's decision.
void AddIfNew(Marking marking, std::vector<Marking>& known) {
  const bool is_known = absl::c_any_of(known, [&](const Marking& one) {
    return (marking.bits & ~one.bits) == 0 && (marking.labels & ~one.labels).none() &&
           marking.ipv4 <= one.ipv4 && marking.ipv6 <= one.ipv6;
  });
  if (!is_known) known.push_back(std::move(marking));
}

// A mark or label is set by whoever comes to `chain`, if anybody does.
void AddIfUsed(const std::vector<std::pair<ChainId, Marking>>& own,
               const std::set<ChainId>& targets, const CniConfigs& cni,
               std::vector<Marking>& markings) {
  for (const auto& [chain, marking] : own) {
    const bool named = !cni.problems.empty() ||
                       absl::c_any_of(cni.references, [&name = chain.name](const auto& reference) {
                         return reference.chain == name;
                       });
    if (named || targets.contains(chain)) markings.push_back(marking);
  }
}

bool SetsForOthers(const TableId& table) {
  return table.name != kKubeProxyTable && table.family != "arp";
}

}  // namespace

DependentsCollector::DependentsCollector() {
  for (const Family family : netlink::kFamilies) {
    for (const DesiredJump& jump : EveryKubeletJump(family)) {
      own_jumps_.emplace_back(jump.base_chain, jump.rule);
    }
  }
}

// kubelet's jumps from base chains.
bool DependentsCollector::IsKubeletJump(const ChainId& from, const SurveyRule& rule) const {
  return rule.rule() != nullptr && absl::c_any_of(own_jumps_, [&](const auto& jump) {
           return jump.first == from && jump.second == *rule.rule();
         });
}

netlink::SurveyFilter DependentsCollector::ManagedMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    NoteReference(table, chain, rule);
    NoteMarkings(table, chain, rule);
    if (rule_of_others_.empty()) NoteRuleOfOthers(table, chain, rule);
    return false;
  };
}

netlink::SurveyFilter DependentsCollector::OtherMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const std::optional<ChainId> from = ChainIn(table, chain);
    NoteOtherJump(table, chain, rule);
    if (from && IsOwnMarking(*from, rule)) {
      other_marking_.emplace_back(*from, MarkingOf(table, chain, rule, MarksSet(rule), {}));
    }
    if (from && IsOwnLabelling(*from, rule)) {
      other_labelling_.emplace_back(*from, MarkingOf(table, chain, rule, 0, LabelsSet(rule)));
    }
    NoteMarkings(table, chain, rule);
    return false;
  };
}

void DependentsCollector::OtherModeUnreadable(const std::string& why) {
  mark_setters_.push_back({.from = "the other iptables mode", .rule = why, .bits = 0xffffffff});
  label_setters_.push_back(
      {.from = "the other iptables mode", .rule = why, .labels = netlink::AllConnLabels()});
}

void DependentsCollector::NoteReference(const TableId& table, const std::string& chain,
                                        const SurveyRule& rule) {
  const std::optional<ChainId> target = TargetIn(table, rule);
  if (!target || !IsKubeletChain(*target)) return;
  const ChainId from = {target->family, target->table, chain};
  if (IsKubeletJump(from, rule)) return;
  const bool kube_proxy = IsKubeProxyChain(from);
  if (++(kube_proxy ? kube_proxy_counts_ : counts_)[*target] > kExamples) return;
  references_.push_back(
      {*target, netlink::ToString(from), SpelledRule(table, chain, rule), kube_proxy});
}

void DependentsCollector::NoteOtherJump(const TableId& table, const std::string& chain,
                                        const SurveyRule& rule) {
  std::optional<ChainId> target = TargetIn(table, rule);
  if (!target || !IsMarkingChain(*target)) return;
  const bool kube_proxy = IsKubeProxyChain({target->family, target->table, chain});
  if (kube_proxy && target->name == kMarkMasqChain) return;
  other_targets_.insert(*std::move(target));
}

void DependentsCollector::NoteRuleOfOthers(const TableId& table, const std::string& chain,
                                           const SurveyRule& rule) {
  constexpr absl::string_view kIptablesTables[] = {"filter", "nat", "mangle", "raw", "security"};
  const bool of_iptables = (table.family == "ip" || table.family == "ip6") &&
                           absl::c_linear_search(kIptablesTables, table.name);
  if (!of_iptables) return;
  const std::optional<ChainId> from = ChainIn(table, chain);
  if (from && (IsKubeletChain(*from) || IsKubeletJump(*from, rule))) return;
  rule_of_others_ =
      absl::StrCat(netlink::ToString(table), " ", chain, ": ", SpelledRule(table, chain, rule));
}

void DependentsCollector::NoteMarkings(const TableId& table, const std::string& chain,
                                       const SurveyRule& rule) {
  const uint32_t bits = MarksSet(rule);
  const netlink::ConnLabelSet labels = LabelsSet(rule);
  if ((bits == 0 && labels.none()) || !SetsForOthers(table)) return;
  const std::optional<ChainId> from = ChainIn(table, chain);
  if (bits != 0 && !(from && IsOwnMarking(*from, rule))) {
    AddIfNew(MarkingOf(table, chain, rule, bits, {}), mark_setters_);
  }
  if (labels.any() && !(from && IsOwnLabelling(*from, rule))) {
    AddIfNew(MarkingOf(table, chain, rule, 0, labels), label_setters_);
  }
}

Dependents DependentsCollector::Finish(CniConfigs cni,
                                       std::vector<std::string> route_localnet) const {
  Dependents dependents = {.references = references_,
                           .reference_counts = counts_,
                           .mark_setters = mark_setters_,
                           .label_setters = label_setters_,
                           .cni = std::move(cni),
                           .route_localnet = std::move(route_localnet),
                           .rule_of_others = rule_of_others_};
  AddIfUsed(other_marking_, other_targets_, dependents.cni, dependents.mark_setters);
  AddIfUsed(other_labelling_, other_targets_, dependents.cni, dependents.label_setters);
  absl::c_sort(dependents.references);
  for (std::vector<Marking>* markings : {&dependents.mark_setters, &dependents.label_setters}) {
    absl::c_sort(*markings, [](const Marking& a, const Marking& b) {
      return std::tie(a.from, a.rule, a.bits, a.ipv4, a.ipv6) <
             std::tie(b.from, b.rule, b.bits, b.ipv4, b.ipv6);
    });
  }
  return dependents;
}

}  // namespace kipt::agent
