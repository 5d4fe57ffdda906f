// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <algorithm>
#include <optional>
#include <utility>

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

// kubelet's jumps from base chains.
bool IsKubeletJump(const ChainId& from, const SurveyRule& rule) {
  for (const DesiredJump& jump : EveryKubeletJump(from.family)) {
    if (jump.base_chain == from && netlink::ToString(from.family, jump.rule) == rule.text) {
      return true;
    }
  }
  return false;
}

// The rule that makes a marking chain one, whoever of kubelet and kube-proxy wrote it, and the one
// that clears the mark.
bool IsOwnMarking(const ChainId& chain, const SurveyRule& rule) {
  return IsKubeletChain(chain) && rule.jump.empty() &&
         absl::StartsWith(rule.text, "-j MARK --set-xmark ");
}

}  // namespace

netlink::SurveyFilter DependentsCollector::ManagedMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    if (!rule.jump.empty()) NoteReference(table, chain, rule);
    if (rule.marks_set != 0) NoteMarks(table, chain, rule);
    return false;
  };
}

netlink::SurveyFilter DependentsCollector::OtherMode() {
  return [this](const TableId& table, const std::string& chain, const SurveyRule& rule) {
    if (rule.marks_set != 0) NoteMarks(table, chain, rule);
    return false;
  };
}

void DependentsCollector::OtherModeUnreadable(const std::string& why) {
  mark_setters_.push_back({.from = "the other iptables mode", .rule = why, .bits = 0xffffffff});
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

void DependentsCollector::NoteMarks(const TableId& table, const std::string& chain,
                                    const SurveyRule& rule) {
  if (table.name == kKubeProxyTable || table.family == "arp") return;
  const std::optional<ChainId> from = ChainIn(table, chain);
  if (from && IsOwnMarking(*from, rule)) return;
  // Another example of bits that are known adds nothing to anybody's decision.
  MarkSetter setter = {.from = absl::StrCat(netlink::ToString(table), " ", chain),
                       .rule = absl::StrCat("-A ", chain, " ", rule.text),
                       .bits = rule.marks_set,
                       .ipv4 = table.family != "ip6",
                       .ipv6 = table.family != "ip"};
  for (const MarkSetter& known : mark_setters_) {
    if ((setter.bits & ~known.bits) == 0 && setter.ipv4 <= known.ipv4 && setter.ipv6 <= known.ipv6)
      return;
  }
  mark_setters_.push_back(std::move(setter));
}

Dependents DependentsCollector::Finish(CniConfigs cni,
                                       std::vector<std::string> route_localnet) const {
  Dependents dependents = {.references = references_,
                           .reference_counts = counts_,
                           .mark_setters = mark_setters_,
                           .cni = std::move(cni),
                           .route_localnet = std::move(route_localnet)};
  std::sort(dependents.references.begin(), dependents.references.end());
  std::sort(dependents.mark_setters.begin(), dependents.mark_setters.end());
  return dependents;
}

}  // namespace kipt::agent
