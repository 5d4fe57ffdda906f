// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/kubelet_forms.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "agent/policy/policy_tables.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Rule;

// The one mark bit that `rule` tests or writes; none where it has no mark, or more than one bit.
std::optional<int> SingleBit(const Rule& rule) {
  uint32_t value = 0;
  if (rule.mark.has_value()) {
    value = rule.mark->value;
  } else if (const auto* set = std::get_if<netlink::SetMark>(&rule.target)) {
    value = set->value;
  }
  if (!std::has_single_bit(value)) return std::nullopt;
  return std::countr_zero(value);
}

// Where the set that starts at `rules[at]` masquerades bit `bit`: RETURN, xor, MASQUERADE (1.19 and
// later, whatever foreign rules stand between) or one marked MASQUERADE (before).
bool IsWholePostroutingSet(absl::Span<const netlink::ObservedRule> rules, int bit) {
  size_t step = 0;
  for (const netlink::ObservedRule& observed : rules) {
    const Rule* rule = observed.rule();
    if (rule == nullptr) {
      if (netlink::MayDecide(observed)) return false;
      continue;
    }
    const bool masquerades = *rule == MasqueradeAll(0) || *rule == MasqueradeAllPlain(0);
    if (step == 0 && (*rule == MasqueradeMarked(bit) || *rule == MasqueradeMarkedPlain(bit))) {
      return true;
    }
    if ((step == 0 && *rule == ReturnUnmarked(bit)) || (step == 1 && *rule == ClearBit(bit))) {
      ++step;
    } else if (step == 2 && masquerades) {
      return true;
    } else if (netlink::MayDecide(observed)) {
      return false;
    }
  }
  return false;
}

}  // namespace

std::optional<KubeletForm> RecognizeKubeletForm(const ChainId& chain, const Rule& rule) {
  const std::optional<int> bit = SingleBit(rule);
  for (const kep3178::RuleRow& row : kep3178::kRules) {
    if (row.table != chain.table || row.chain != chain.name ||
        !kep3178::Holds(row.families, chain.family)) {
      continue;
    }
    if (kep3178::IsLabel(row.bit)) {
      if (!rule.conn_label || row.form(rule.conn_label->label) != rule) continue;
      const int label = rule.conn_label->label;
      return KubeletForm{.description = absl::StrCat("label ", label),
                         .bit = std::nullopt,
                         .label = label,
                         .shared_with_kube_proxy = false};
    }
    if (row.form(bit.value_or(0)) != rule) continue;
    return KubeletForm{
        .description = row.bit == kep3178::Bit::kNone ? std::string(row.reason)
                                                      : absl::StrCat("mark bit ", *bit),
        .bit = row.bit == kep3178::Bit::kNone ? std::nullopt : bit,
        .label = std::nullopt,
        .shared_with_kube_proxy = row.writer == kep3178::Writer::kKubeletAndKubeProxy};
  }
  for (const kep3178::SupersededRow& row : kep3178::kSuperseded) {
    if (row.table == chain.table && row.chain == chain.name && row.form(bit.value_or(0)) == rule) {
      return KubeletForm{.description = std::string(row.description),
                         .bit = bit,
                         .label = std::nullopt,
                         .shared_with_kube_proxy = true};
    }
  }
  return std::nullopt;
}

bool IsKubeletComment(const ChainId& chain, absl::string_view comment) {
  if (comment.empty()) return false;
  return std::any_of(kep3178::kRules.begin(), kep3178::kRules.end(),
                     [&](const kep3178::RuleRow& row) {
                       return row.table == chain.table && row.chain == chain.name &&
                              row.form(0).comment == comment;
                     });
}

std::optional<int> CompleteSetBit(const ChainId& chain,
                                  absl::Span<const netlink::ObservedRule> rules) {
  if (chain.table != netlink::Table::kNat) return std::nullopt;
  for (const netlink::ObservedRule& observed : rules) {
    const Rule* rule = observed.rule();
    const std::optional<int> bit = rule == nullptr ? std::nullopt : SingleBit(*rule);
    if (!bit.has_value()) continue;
    if (chain.name == kMarkMasqChain && *rule == SetBit(*bit)) return bit;
    if (chain.name == kPostroutingChain && IsWholePostroutingSet(rules, *bit)) return bit;
  }
  return std::nullopt;
}

}  // namespace kipt::agent
