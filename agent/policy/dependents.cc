// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <algorithm>
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

// The rule that makes a marking chain one, whoever of kubelet and kube-proxy wrote it, and the one
// that clears the mark; with any bit.
bool IsOwnMarking(const ChainId& chain, const SurveyRule& rule) {
  if (chain.table != netlink::Table::kNat || std::popcount(rule.marks_set) != 1) return false;
  const int bit = std::countr_zero(rule.marks_set);
  if (chain.name == kMarkMasqChain || chain.name == kMarkDropChain) {
    return rule.text == netlink::ToString(chain.family, SetBit(bit));
  }
  return chain.name == kPostroutingChain &&
         rule.text == netlink::ToString(chain.family, ClearBit(bit));
}

// The same of labels, with any label: in these two chains, and in no other of kubelet's.
bool IsOwnLabelling(const ChainId& chain, const SurveyRule& rule) {
  if (chain.table != netlink::Table::kNat || rule.labels_set.count() != 1 ||
      (chain.name != kLabelMasqChain && chain.name != kLabelDropChain)) {
    return false;
  }
  int label = 0;
  while (!rule.labels_set.test(static_cast<size_t>(label))) ++label;
  return rule.text == netlink::ToString(chain.family, SetLabel(label));
}

// Another example of what is known adds nothing to anybody's decision.
template <typename Setter, typename Values>
bool IsKnown(const std::vector<Setter>& setters, const Setter& setter, Values Setter::*values) {
  return std::any_of(setters.begin(), setters.end(), [&](const Setter& known) {
    return (setter.*values & ~(known.*values)) == Values{} && setter.ipv4 <= known.ipv4 &&
           setter.ipv6 <= known.ipv6;
  });
}

// A setter of `table` that has no values yet.
template <typename Setter>
Setter SetterOf(const TableId& table, const std::string& chain, const SurveyRule& rule) {
  Setter setter;
  setter.from = absl::StrCat(netlink::ToString(table), " ", chain);
  setter.rule = absl::StrCat("-A ", chain, " ", rule.text);
  setter.ipv4 = table.family != "ip6";
  setter.ipv6 = table.family != "ip";
  return setter;
}

// A mark or label is set by whoever comes to `chain`, if anybody does.
template <typename Setter>
void AddIfUsed(const std::vector<std::pair<ChainId, Setter>>& own, const std::set<ChainId>& targets,
               const CniConfigs& cni, std::vector<Setter>& setters) {
  for (const auto& [chain, setter] : own) {
    const bool named =
        !cni.problems.empty() || std::any_of(cni.references.begin(), cni.references.end(),
                                             [&name = chain.name](const CniReference& reference) {
                                               return reference.chain == name;
                                             });
    if (named || targets.contains(chain)) setters.push_back(setter);
  }
}

bool SetsForOthers(const TableId& table) {
  return table.name != kKubeProxyTable && table.family != "arp";
}

}  // namespace

DependentsCollector::DependentsCollector() {
  for (const Family family : netlink::kFamilies) {
    for (const DesiredJump& jump : EveryKubeletJump(family)) {
      own_jumps_.emplace_back(jump.base_chain, netlink::ToString(family, jump.rule));
    }
  }
}

// kubelet's jumps from base chains.
bool DependentsCollector::IsKubeletJump(const ChainId& from, const SurveyRule& rule) const {
  return std::any_of(own_jumps_.begin(), own_jumps_.end(), [&](const auto& jump) {
    return jump.first == from && jump.second == rule.text;
  });
}

netlink::SurveyFilter DependentsCollector::ManagedMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    if (!rule.jump.empty()) NoteReference(table, chain, rule);
    if (rule.marks_set != 0) NoteMarks(table, chain, rule);
    if (rule.labels_set.any()) NoteLabels(table, chain, rule);
    if (rule_of_others_.empty()) NoteRuleOfOthers(table, chain, rule);
    return false;
  };
}

netlink::SurveyFilter DependentsCollector::OtherMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const std::optional<ChainId> from = ChainIn(table, chain);
    if (!rule.jump.empty()) NoteOtherJump(table, chain, rule);
    if (from && IsOwnMarking(*from, rule)) {
      auto setter = SetterOf<MarkSetter>(table, chain, rule);
      setter.bits = rule.marks_set;
      other_marking_.emplace_back(*from, std::move(setter));
    }
    if (from && IsOwnLabelling(*from, rule)) {
      auto setter = SetterOf<LabelSetter>(table, chain, rule);
      setter.labels = rule.labels_set;
      other_labelling_.emplace_back(*from, std::move(setter));
    }
    if (rule.marks_set != 0) NoteMarks(table, chain, rule);
    if (rule.labels_set.any()) NoteLabels(table, chain, rule);
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
  const std::optional<ChainId> target = ChainIn(table, rule.jump);
  if (!target || !IsKubeletChain(*target)) return;
  const ChainId from = {target->family, target->table, chain};
  if (IsKubeletJump(from, rule)) return;
  const bool kube_proxy = IsKubeProxyChain(from);
  if (++(kube_proxy ? kube_proxy_counts_ : counts_)[*target] > kExamples) return;
  references_.push_back(
      {*target, netlink::ToString(from), absl::StrCat("-A ", chain, " ", rule.text), kube_proxy});
}

void DependentsCollector::NoteOtherJump(const TableId& table, const std::string& chain,
                                        const SurveyRule& rule) {
  std::optional<ChainId> target = ChainIn(table, rule.jump);
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
      absl::StrCat(netlink::ToString(table), " ", chain, ": -A ", chain, " ", rule.text);
}

void DependentsCollector::NoteMarks(const TableId& table, const std::string& chain,
                                    const SurveyRule& rule) {
  if (!SetsForOthers(table)) return;
  const std::optional<ChainId> from = ChainIn(table, chain);
  if (from && IsOwnMarking(*from, rule)) return;
  auto setter = SetterOf<MarkSetter>(table, chain, rule);
  setter.bits = rule.marks_set;
  if (!IsKnown(mark_setters_, setter, &MarkSetter::bits)) {
    mark_setters_.push_back(std::move(setter));
  }
}

void DependentsCollector::NoteLabels(const TableId& table, const std::string& chain,
                                     const SurveyRule& rule) {
  if (!SetsForOthers(table)) return;
  const std::optional<ChainId> from = ChainIn(table, chain);
  if (from && IsOwnLabelling(*from, rule)) return;
  auto setter = SetterOf<LabelSetter>(table, chain, rule);
  setter.labels = rule.labels_set;
  if (!IsKnown(label_setters_, setter, &LabelSetter::labels)) {
    label_setters_.push_back(std::move(setter));
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
  std::sort(dependents.references.begin(), dependents.references.end());
  std::sort(dependents.mark_setters.begin(), dependents.mark_setters.end());
  std::sort(dependents.label_setters.begin(), dependents.label_setters.end(),
            [](const LabelSetter& a, const LabelSetter& b) {
              return std::tie(a.from, a.rule) < std::tie(b.from, b.rule);
            });
  return dependents;
}

}  // namespace kipt::agent
