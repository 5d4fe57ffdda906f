// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <optional>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/ownership.h"
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

// Another example of what is known adds nothing to anybody's decision.
void AddIfNew(const Marking& marking, std::vector<Marking>& known) {
  const bool is_known = absl::c_any_of(known, [&](const Marking& one) {
    return (marking.bits & ~one.bits) == 0 && (marking.labels & ~one.labels).none() &&
           marking.ipv4 <= one.ipv4 && marking.ipv6 <= one.ipv6;
  });
  if (!is_known) known.push_back(marking);
}

}  // namespace

// Where a rule of a survey stands, and how it is spelled there.
struct DependentsCollector::Place {
  const TableId& table;
  const std::string& chain;

  std::optional<ChainId> Id() const { return ChainIn(table, chain); }
  std::string From() const { return absl::StrCat(netlink::ToString(table), " ", chain); }
  std::string Spell(const SurveyRule& rule) const {
    return absl::StrCat("-A ", chain, " ", ToString(table, rule));
  }
  // The chain that `rule`, which stands here, jumps to.
  std::optional<ChainId> TargetOf(const SurveyRule& rule) const {
    const std::string* jump = JumpTarget(rule);
    return jump != nullptr ? ChainIn(table, *jump) : std::nullopt;
  }
};

netlink::SurveyFilter DependentsCollector::ManagedMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const Place place = {table, chain};
    NoteReference(place, rule);
    NoteMarkings(place, rule, /*managed_mode=*/true);
    if (rule_of_others_.empty()) NoteRuleOfOthers(place, rule);
    return false;
  };
}

netlink::SurveyFilter DependentsCollector::OtherMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const Place place = {table, chain};
    NoteOtherJump(place, rule);
    NoteMarkings(place, rule, /*managed_mode=*/false);
    return false;
  };
}

void DependentsCollector::OtherModeUnreadable(const std::string& why) {
  const std::string from = "the other iptables mode";
  setters_.push_back({.from = from, .rule = why, .bits = 0xffffffff});
  setters_.push_back({.from = from, .rule = why, .labels = netlink::AllConnLabels()});
}

void DependentsCollector::NoteReference(const Place& place, const SurveyRule& rule) {
  const std::optional<ChainId> target = place.TargetOf(rule);
  if (!target || !IsKubeletChain(*target) || IsKubeletJump(*place.Id(), rule)) return;
  const bool kube_proxy = IsKubeProxyChain(*place.Id());
  if (++(kube_proxy ? kube_proxy_counts_ : counts_)[*target] > kExamples) return;
  references_.push_back({*target, place.From(), place.Spell(rule), kube_proxy});
}

void DependentsCollector::NoteOtherJump(const Place& place, const SurveyRule& rule) {
  const std::optional<ChainId> target = place.TargetOf(rule);
  if (!target || !IsMarkingChain(*target)) return;
  if (IsKubeProxyChain(*place.Id()) && target->name == kMarkMasqChain) return;
  other_targets_.insert(*target);
}

void DependentsCollector::NoteRuleOfOthers(const Place& place, const SurveyRule& rule) {
  constexpr absl::string_view kIptablesTables[] = {"filter", "nat", "mangle", "raw", "security"};
  const TableId& table = place.table;
  const bool of_iptables = (table.family == "ip" || table.family == "ip6") &&
                           absl::c_linear_search(kIptablesTables, table.name);
  if (!of_iptables) return;
  const std::optional<ChainId> id = place.Id();
  if (id && (IsKubeletChain(*id) || IsKubeletJump(*id, rule))) return;
  rule_of_others_ = absl::StrCat(place.From(), ": ", place.Spell(rule));
}

void DependentsCollector::NoteMarkings(const Place& place, const SurveyRule& rule,
                                       bool managed_mode) {
  const uint32_t bits = MarksSet(rule);
  const netlink::ConnLabelSet labels = LabelsSet(rule);
  const TableId& table = place.table;
  if ((bits == 0 && labels.none()) || table.name == kKubeProxyTable || table.family == "arp") {
    return;
  }
  // The rule that makes a marking chain one, whoever of kubelet and kube-proxy wrote it, and the
  // one that clears the mark; with any bit or label.
  const std::optional<ChainId> id = place.Id();
  const bool own = id && rule.rule() != nullptr && RecognizeKubeletForm(*id, *rule.rule());
  if (own && managed_mode) return;
  Marking marking = {.from = place.From(),
                     .rule = place.Spell(rule),
                     .ipv4 = table.family != "ip6",
                     .ipv6 = table.family != "ip"};
  const auto note = [&] {
    if (own) {
      other_marking_.emplace_back(*id, marking);
    } else {
      AddIfNew(marking, setters_);
    }
  };
  marking.bits = bits;
  if (bits != 0) note();
  marking.bits = 0;
  marking.labels = labels;
  if (labels.any()) note();
}

Dependents DependentsCollector::Finish(CniConfigs cni,
                                       std::vector<std::string> route_localnet) const {
  Dependents dependents = {.references = references_,
                           .reference_counts = counts_,
                           .cni = std::move(cni),
                           .route_localnet = std::move(route_localnet),
                           .rule_of_others = rule_of_others_};
  absl::c_sort(dependents.references);
  std::vector<Marking> setters = setters_;
  // A mark or label is set by whoever comes to the chain, if anybody does.
  for (const auto& [chain, marking] : other_marking_) {
    const bool named =
        !dependents.cni.problems.empty() ||
        absl::c_any_of(dependents.cni.references, [&name = chain.name](const auto& reference) {
          return reference.chain == name;
        });
    if (named || other_targets_.contains(chain)) setters.push_back(marking);
  }
  absl::c_sort(setters, [](const Marking& a, const Marking& b) {
    return std::tie(a.from, a.rule, a.bits, a.ipv4, a.ipv6) <
           std::tie(b.from, b.rule, b.bits, b.ipv4, b.ipv6);
  });
  for (Marking& setter : setters) {
    (setter.bits != 0 ? dependents.mark_setters : dependents.label_setters)
        .push_back(std::move(setter));
  }
  return dependents;
}

}  // namespace kipt::agent
