// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <optional>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "agent/policy/known_owners.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedRule;
using netlink::SurveyRule;
using netlink::Table;
using netlink::TableId;

// More than a person reads.
constexpr uint64_t kExamples = 4;

// Of its nftables mode, since 1.29.
bool IsKubeProxyTable(const TableId& table) {
  return table.name == "kube-proxy" && (table.family == "ip" || table.family == "ip6");
}

// Another example of known claims changes no decision.
void AddIfNew(const Marking& marking, std::vector<Marking>& known) {
  uint32_t bits = marking.bits;
  netlink::ConnLabelSet labels = marking.labels;
  for (const Marking& one : known) {
    if (marking.ipv4 > one.ipv4 || marking.ipv6 > one.ipv6) continue;
    bits &= ~one.bits;
    labels &= ~one.labels;
  }
  if (bits != 0 || labels.any()) known.push_back(marking);
}

}  // namespace

// The place of a survey's rule, and its spelling there.
struct DependentsCollector::Place {
  const TableId& table;
  const std::string& chain;

  std::optional<ChainId> Id() const { return KnownChainId(table, chain); }
  std::string From() const { return absl::StrCat(netlink::ToString(table), " ", chain); }
  std::string Spell(const SurveyRule& rule) const {
    return absl::StrCat("-A ", chain, " ", ToString(table, rule));
  }
  // The chain that `rule`, which is here, jumps to.
  std::optional<ChainId> TargetOf(const SurveyRule& rule) const {
    const std::string* jump = JumpTarget(rule);
    return jump != nullptr ? KnownChainId(table, *jump) : std::nullopt;
  }
};

netlink::SurveyFilter DependentsCollector::ManagedMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const Place place = {table, chain};
    NoteReference(place, rule);
    NoteMarkings(place, rule, /*managed_mode=*/true);
    NoteRuleOfOthers(place, rule, /*managed_mode=*/true);
    return false;
  };
}

netlink::SurveyFilter DependentsCollector::OtherMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    const Place place = {table, chain};
    NoteOtherJump(place, rule);
    NoteMarkings(place, rule, /*managed_mode=*/false);
    NoteRuleOfOthers(place, rule, /*managed_mode=*/false);
    // For NoteOtherMode.
    const std::optional<ChainId> id = place.Id();
    return id && id->table == Table::kNat &&
           (id->name == "POSTROUTING" || id->name == kPostroutingChain);
  };
}

void DependentsCollector::NoteManagedMode(const netlink::Survey& survey) {
  NoteNatTables(survey);
  for (const TableId& table : survey.jumping_maps) {
    for (const Family family : netlink::kFamilies) {
      for (const DesiredChain& chain : EveryKubeletChain(family)) {
        if (KnownChainId(table, chain.id.name) != chain.id) continue;
        references_.push_back({chain.id, netlink::ToString(table), "a map of it jumps to chains"});
      }
    }
  }
}

void DependentsCollector::NoteOtherMode(const netlink::Survey& survey) {
  NoteNatTables(survey);
  other_maps_.insert(survey.jumping_maps.begin(), survey.jumping_maps.end());
  for (const Family family : netlink::kFamilies) {
    const TableId table = {std::string(netlink::FamilyName(family)), "nat"};
    const ChainId id = {family, Table::kNat, std::string(kPostroutingChain)};
    const netlink::SurveyChain* base = survey.Find(table, "POSTROUTING");
    const netlink::SurveyChain* chain = survey.Find(table, id.name);
    if (base == nullptr || chain == nullptr) continue;
    const auto first = absl::c_find_if(
        base->rules, [](const SurveyRule& rule) { return netlink::MayDecide(rule); });
    if (first == base->rules.end() ||
        !IsKubeletJump({family, Table::kNat, "POSTROUTING"}, *first)) {
      continue;
    }
    const std::vector<ObservedRule> rules(chain->rules.begin(), chain->rules.end());
    const std::optional<int> bit = CompleteSetBit(id, rules);
    if (bit) masqueraded_[family] = uint32_t{1} << *bit;
  }
}

void DependentsCollector::NoteNatTables(const netlink::Survey& survey) {
  for (const auto& [table, chains] : survey.tables) {
    const bool nat = absl::c_any_of(chains, [&id = table](const auto& chain) {
      const std::optional<netlink::ChainHook> hook = HookOf(id, chain.first, chain.second);
      return hook && hook->nat;
    });
    if (nat) nat_tables_.insert(table);
  }
}

void DependentsCollector::Note(const Marking& marking) { AddIfNew(marking, setters_); }

void DependentsCollector::OtherModeUnreadable(const std::string& why) {
  const std::string from = "the other iptables mode";
  setters_.push_back({.from = from, .rule = why, .bits = netlink::kAllMarks});
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
  const bool kube_proxys = IsKubeProxyChain(*place.Id()) && target->name == kMarkMasqChain;
  (kube_proxys ? kube_proxys_targets_ : other_targets_).insert(*target);
}

void DependentsCollector::NoteRuleOfOthers(const Place& place, const SurveyRule& rule,
                                           bool managed_mode) {
  const bool first = managed_mode && rule_of_others_.empty() && IsIptablesTable(place.table);
  const bool tracked = tracked_.contains(place.table.family);
  if (!first && tracked) return;
  const std::optional<ChainId> id = place.Id();
  if (id && (IsKubeletChain(*id) || IsKubeletJump(*id, rule))) return;
  const auto text = [&] { return absl::StrCat(place.From(), ": ", place.Spell(rule)); };
  if (first) rule_of_others_ = text();
  if (tracked) return;
  if (TracksConnections(rule)) {
    tracked_.insert(place.table.family);
  } else if (!untracking_.contains(place.table)) {
    untracking_[place.table] = text();
  }
}

void DependentsCollector::NoteMarkings(const Place& place, const SurveyRule& rule,
                                       bool managed_mode) {
  const uint32_t bits = MarksSet(rule);
  const netlink::ConnLabelSet labels = LabelsSet(rule);
  const TableId& table = place.table;
  if ((bits == 0 && labels.none()) || IsKubeProxyTable(table) || table.family == "arp") return;
  // The rule that makes a marking chain one, kubelet's or kube-proxy's, and the one that clears the
  // mark; with any bit or label.
  const std::optional<ChainId> id = place.Id();
  const bool own = id && (RecognizeCopy(*id, rule) ||
                          (rule.rule() != nullptr && RecognizeKubeletForm(*id, *rule.rule())));
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

Dependents DependentsCollector::Finish(CniConfigs cni, RouteLocalnet route_localnet) const {
  Dependents dependents = {.references = references_,
                           .reference_counts = counts_,
                           .cni = std::move(cni),
                           .route_localnet = std::move(route_localnet),
                           .rule_of_others = rule_of_others_};
  absl::c_sort(dependents.references);
  std::vector<Marking> setters = setters_;
  // A marking chain counts if anything leads to it.
  for (const auto& [chain, marking] : other_marking_) {
    const bool named =
        !dependents.cni.AllRead() ||
        absl::c_any_of(dependents.cni.references, [&name = chain.name](const auto& reference) {
          return reference.chain == name;
        });
    const TableId table = {std::string(netlink::FamilyName(chain.family)),
                           std::string(netlink::TableName(chain.table))};
    const auto masqueraded = masqueraded_.find(chain.family);
    const bool acts =
        masqueraded != masqueraded_.end() && (marking.bits & ~masqueraded->second) == 0;
    if (named || other_targets_.contains(chain) ||
        (kube_proxys_targets_.contains(chain) && !acts) ||
        (IsMarkingChain(chain) && other_maps_.contains(table))) {
      setters.push_back(marking);
    }
  }
  for (const auto& [table, rule] : untracking_) {
    for (const Family family : netlink::kFamilies) {
      const std::string name(netlink::FamilyName(family));
      if ((table.family == name || table.family == "inet") && nat_tables_.contains(table) &&
          !tracked_.contains(name) && !tracked_.contains("inet")) {
        dependents.untracked.emplace(family, rule);
      }
    }
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

bool TracksConnections(const ObservedRule& rule) {
  constexpr absl::string_view kTargets[] = {"CONNMARK", "DNAT",     "MASQUERADE",
                                            "NETMAP",   "REDIRECT", "SNAT"};
  const netlink::Rule& known = netlink::KnownMatches(rule);
  return known.ct_state || known.conn_label ||
         absl::c_linear_search(kTargets, netlink::TargetName(rule));
}

std::string ToString(const RouteLocalnet& setting) {
  std::string text;
  if (!setting.interfaces.empty() || setting.unread.empty()) {
    absl::StrAppend(&text, "route_localnet is 1 for ", absl::StrJoin(setting.interfaces, ", "));
  }
  if (!setting.unread.empty()) {
    absl::StrAppend(&text, text.empty() ? "route_localnet may be 1: " : ", and may be for others: ",
                    setting.unread);
  }
  return text;
}

}  // namespace kipt::agent
