// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/guards.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agent/policy/kubelet_forms.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::ObservedRule;
using netlink::Rule;

template <typename T>
bool Has(const netlink::Target& target) {
  return std::holds_alternative<T>(target);
}

std::string Quoted(const ChainId& chain, const Rule& rule) {
  return absl::StrCat("\"-A ", chain.name, " ", netlink::ToString(chain.family, rule), "\"");
}

std::vector<Damage> FindFirewallDamage(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  std::vector<Damage> damage;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule == nullptr || !Has<netlink::Drop>(rule->target) || !netlink::IsUnconditional(*rule)) {
      continue;
    }
    if (IsKubeletComment(chain, rule->comment)) {
      damage.push_back({.condition = Condition::kDamagedRule,
                        .message = absl::StrCat(
                            Quoted(chain, *rule),
                            " drops every packet: it has kubelet's comment and lost its match, as "
                            "when iptables 1.8.7 or older saved and restored it"),
                        .index = i,
                        .delete_rule = true});
    } else {
      damage.push_back(
          {.condition = Condition::kForeignDropsEverything,
           .message = absl::StrCat(
               Quoted(chain, *rule),
               " drops every packet and is not kubelet's: if nobody wants it, delete it"),
           .index = i});
    }
  }
  return damage;
}

std::vector<Damage> FindPostroutingDamage(const ChainId& chain,
                                          absl::Span<const ObservedRule> rules) {
  size_t masquerades_end = 0;  // behind the last MASQUERADE
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule != nullptr && Has<netlink::Masquerade>(rule->target)) masquerades_end = i + 1;
  }
  std::vector<Damage> damage;
  bool guarded = false;
  for (size_t i = 0; i < masquerades_end; ++i) {
    const Rule* rule = rules[i].rule();
    if (rule == nullptr) continue;
    if (*rule == Rule{.target = netlink::Return{}}) {
      damage.push_back({.condition = Condition::kDamagedRule,
                        .message = absl::StrCat(
                            Quoted(chain, *rule),
                            " returns every packet, so that none is masqueraded: it lost its mark "
                            "match, as when iptables 1.8.7 or older saved and restored it"),
                        .index = i,
                        .delete_rule = true});
    } else if (Has<netlink::Return>(rule->target) && rule->mark.has_value() &&
               rule->mark->negated) {
      guarded = true;
    } else if (Has<netlink::Masquerade>(rule->target) && !rule->mark.has_value() &&
               !rule->conn_label.has_value() && !guarded) {
      damage.push_back(
          {.condition = Condition::kDamagedRule,
           .message = absl::StrCat(Quoted(chain, *rule),
                                   " masquerades every packet: no mark is tested on the way to it"),
           .index = i});
    }
  }
  return damage;
}

}  // namespace

std::vector<Damage> FindDamage(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  if (chain.table == netlink::Table::kFilter &&
      (chain.name == kFirewallChain || chain.name == kLabelFirewallChain)) {
    return FindFirewallDamage(chain, rules);
  }
  if (chain.table == netlink::Table::kNat && chain.name == kPostroutingChain) {
    return FindPostroutingDamage(chain, rules);
  }
  return {};
}

std::vector<Damage> FindVoidedMarks(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  std::vector<Damage> damage;
  uint32_t set = 0;  // by kubelet's rules so far
  for (size_t i = 0; IsMarkingChain(chain) && i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule != nullptr && RecognizeKubeletForm(chain, *rule)) {
      set |= netlink::MarksSet(rules[i]);
    }
    const uint32_t voided = set & netlink::MarksCleared(rules[i]);
    if (voided == 0) continue;
    damage.push_back(
        {.condition = Condition::kVoidedMark,
         .message = absl::StrFormat(
             "\"-A %s %s\" clears mark 0x%x after kubelet's rule has set it, so packets "
             "that match it are not marked: delete it",
             chain.name, netlink::ToString(chain.family, rules[i]), voided),
         .index = i});
  }
  return damage;
}

}  // namespace kipt::agent
