// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/ownership.h"

#include <bit>
#include <cstdint>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "agent/policy/policy_tables.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::ObservedRule;
using netlink::Rule;
using netlink::Table;

bool KubeProxyShows(const netlink::Snapshot& snapshot, netlink::Family family,
                    kep3178::Shows what) {
  return absl::c_any_of(kep3178::kKubeProxyChains, [&](const kep3178::KubeProxyRow& row) {
    return row.tells == what &&
           snapshot.Find({family, row.table, std::string(row.chain)}) != nullptr;
  });
}

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

// Whether `rules` masquerade `bit`: RETURN, xor, MASQUERADE (since 1.19) or one marked MASQUERADE
// (before). Foreign rules among them do not matter, but a rule of another bit's set does, and one
// that lost its match: they return packets that are marked with `bit`.
bool IsWholePostroutingSet(const ChainId& chain, absl::Span<const ObservedRule> rules, int bit) {
  const Rule none;
  size_t step = 0;
  for (const ObservedRule& observed : rules) {
    const Rule& rule = observed.rule() != nullptr ? *observed.rule() : none;
    if (step == 0 && (rule == MasqueradeMarked(bit) || rule == MasqueradeMarkedPlain(bit))) {
      return true;
    }
    if ((step == 0 && rule == ReturnUnmarked(bit)) || (step == 1 && rule == ClearBit(bit))) {
      ++step;
    } else if (step == 2 && (rule == MasqueradeAll(bit) || rule == MasqueradeAllPlain(bit))) {
      return true;
    } else if (LostItsMatch(chain, rule) ||
               (RecognizeKubeletForm(chain, rule) && netlink::MayDecide(observed))) {
      return false;
    }
  }
  return false;
}

template <typename T>
bool Has(const Rule& rule) {
  return std::holds_alternative<T>(rule.target);
}

std::string Quoted(const ChainId& chain, const ObservedRule& rule) {
  return GoQuote(absl::StrCat("-A ", chain.name, " ", netlink::ToString(chain.family, rule)));
}

std::vector<Damage> FindFirewallDamage(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  std::vector<Damage> damage;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule == nullptr || !Has<netlink::Drop>(*rule) || !netlink::IsUnconditional(*rule)) continue;
    const bool kubelets = LostItsMatch(chain, *rule);
    damage.push_back(
        {.condition = kubelets ? Condition::kDamagedRule : Condition::kForeignDropsEverything,
         .message = absl::StrCat(
             Quoted(chain, rules[i]), " drops every packet",
             kubelets ? ": it has kubelet's comment and lost its match, as when iptables 1.8.7 or "
                        "older saved and restored it"
                      : " and is not kubelet's: delete it if it is not intended"),
         .index = i,
         .delete_rule = kubelets});
  }
  return damage;
}

std::vector<Damage> FindPostroutingDamage(const ChainId& chain,
                                          absl::Span<const ObservedRule> rules) {
  size_t masquerades_end = 0;  // after the last MASQUERADE
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule != nullptr && Has<netlink::Masquerade>(*rule)) masquerades_end = i + 1;
  }
  std::vector<Damage> damage;
  bool guarded = false;
  for (size_t i = 0; i < masquerades_end; ++i) {
    const Rule* rule = rules[i].rule();
    if (rule == nullptr) continue;
    const bool lost = LostItsMatch(chain, *rule);
    const bool masquerades_all =
        Has<netlink::Masquerade>(*rule) && netlink::IsUnconditional(*rule) && !guarded;
    guarded |= Has<netlink::Return>(*rule) && rule->mark && rule->mark->negated;
    if (!lost && !masquerades_all) continue;
    damage.push_back(
        {.condition = Condition::kDamagedRule,
         .message = absl::StrCat(
             Quoted(chain, rules[i]),
             lost ? " returns every packet, so that none is masqueraded: it lost its mark match, "
                    "as when iptables 1.8.7 or older saved and restored it"
                  : " masquerades every packet: no mark is tested on the way to it"),
         .index = i,
         .delete_rule = lost});
  }
  return damage;
}

}  // namespace

bool IsKubeletChain(const ChainId& chain) {
  return absl::c_any_of(kep3178::kChains, [&](const auto& row) { return IsOf(row, chain); });
}

bool IsLabelChain(const ChainId& chain) {
  return absl::c_any_of(kep3178::kChains, [&](const kep3178::ChainRow& row) {
    return row.in == kep3178::In::kBothModesLabelled && IsOf(row, chain);
  });
}

bool IsFirewallChain(const ChainId& chain) {
  return chain.table == Table::kFilter &&
         (chain.name == kFirewallChain || chain.name == kLabelFirewallChain);
}

bool IsMarkingChain(const ChainId& chain) {
  return absl::c_any_of(kep3178::kRules, [&](const kep3178::RuleRow& row) {
    return (row.form == SetBit || row.form == SetLabel) && IsOf(row, chain);
  });
}

bool IsKubeProxyChain(const ChainId& chain) {
  return absl::c_any_of(kep3178::kKubeProxyChains, [&](const kep3178::KubeProxyRow& row) {
    absl::string_view name = row.chain;
    return row.table == chain.table &&
           (absl::ConsumeSuffix(&name, "*") ? absl::StartsWith(chain.name, name)
                                            : chain.name == name);
  });
}

bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family) {
  return KubeProxyShows(snapshot, family, kep3178::Shows::kLives);
}

bool KubeProxyLeaves(const netlink::Snapshot& snapshot, netlink::Family family) {
  const std::string services = "KUBE-SERVICES";
  if (snapshot.Find({family, Table::kNat, services}) == nullptr) return false;
  return absl::c_none_of(kep3178::kOthersJumpFrom, [&](const kep3178::BaseChainRow& row) {
    const netlink::ObservedChain* base = snapshot.Find({family, row.table, std::string(row.chain)});
    return base != nullptr && absl::c_any_of(base->rules, [&](const ObservedRule& rule) {
             const std::string* target = netlink::JumpTarget(rule);
             return target != nullptr && *target == services;
           });
  });
}

bool KubeProxyDropsByItself(const netlink::Snapshot& snapshot, netlink::Family family) {
  return KubeProxyShows(snapshot, family, kep3178::Shows::kDropsByItself);
}

std::optional<KubeletForm> RecognizeKubeletForm(const ChainId& chain, const Rule& rule) {
  const std::optional<int> bit = SingleBit(rule);
  for (const kep3178::RuleRow& row : kep3178::kRules) {
    if (!IsOf(row, chain) || !IsFor(row, chain.family)) continue;
    const bool labelled = IsLabel(row.bit);
    if (labelled && !rule.conn_label) continue;
    const int number = labelled ? rule.conn_label->label : bit.value_or(0);
    if (row.form(number) != rule) continue;
    KubeletForm form = {
        .description = std::string(row.reason),
        .bit = std::nullopt,
        .label = std::nullopt,
        .shared_with_kube_proxy = row.writer == kep3178::Writer::kKubeletAndKubeProxy};
    if (labelled) {
      form.label = number;
    } else if (row.bit != kep3178::Bit::kNone) {
      form.bit = number;
    }
    if (row.bit != kep3178::Bit::kNone && row.in != kep3178::In::kOlderKubelets) {
      form.description = absl::StrCat(labelled ? "label " : "mark bit ", number);
    }
    return form;
  }
  return std::nullopt;
}

bool IsIpvsHairpin(const netlink::OpaqueRule* rule) {
  return rule != nullptr && rule->target == "MASQUERADE" && rule->set_directions == "dst,dst,src" &&
         (rule->set.empty() || rule->set == "KUBE-LOOP-BACK" || rule->set == "KUBE-6-LOOP-BACK");
}

bool LostItsMatch(const ChainId& chain, const Rule& rule) {
  if (!netlink::IsUnconditional(rule) || RecognizeKubeletForm(chain, rule)) return false;
  return absl::c_any_of(kep3178::kRules, [&](const kep3178::RuleRow& row) {
    if (!IsOf(row, chain) || IsLabel(row.bit)) return false;
    const Rule form = row.form(0);
    return form.comment == rule.comment && form.target == rule.target;
  });
}

bool IsKubeletRule(const ChainId& chain, const ObservedRule& observed) {
  const Rule* rule = observed.rule();
  return rule != nullptr && (RecognizeKubeletForm(chain, *rule) || LostItsMatch(chain, *rule));
}

bool IsKubeletJump(const ChainId& from, const ObservedRule& observed) {
  const Rule* rule = observed.rule();
  return rule != nullptr && absl::c_any_of(kep3178::kJumps, [&](const kep3178::JumpRow& row) {
           return IsOf(row, from) && IsFor(row, from.family) && RuleOf(row) == *rule;
         });
}

std::optional<int> CompleteSetBit(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  if (chain.table != Table::kNat) return std::nullopt;
  for (const ObservedRule& observed : rules) {
    const Rule* rule = observed.rule();
    const std::optional<int> bit = rule == nullptr ? std::nullopt : SingleBit(*rule);
    if (!bit.has_value()) continue;
    if (chain.name == kMarkMasqChain && *rule == SetBit(*bit)) return bit;
    if (chain.name == kPostroutingChain && IsWholePostroutingSet(chain, rules, *bit)) return bit;
  }
  return std::nullopt;
}

std::vector<Damage> FindDamage(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  if (IsFirewallChain(chain)) return FindFirewallDamage(chain, rules);
  if (chain.table == Table::kNat && chain.name == kPostroutingChain) {
    return FindPostroutingDamage(chain, rules);
  }
  return {};
}

std::vector<Damage> FindForeignDrops(const ChainId& chain, absl::Span<const ObservedRule> rules,
                                     netlink::Walk& walk) {
  std::vector<Damage> damage;
  if (!IsFirewallChain(chain)) return damage;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    const bool plain = rule != nullptr && Has<netlink::Drop>(*rule);
    if (plain || !walk.DropsUnheard(chain, rules[i])) continue;
    const absl::string_view what =
        walk.Drops(chain, rules[i])
            ? " drops every packet"
            : " queues every packet for a program, and drops it where none listens";
    damage.push_back(
        {.condition = Condition::kForeignDropsEverything,
         .message = absl::StrCat(Quoted(chain, rules[i]), what,
                                 " and is not kubelet's: delete it if it is not intended"),
         .index = i});
  }
  return damage;
}

std::vector<Damage> FindVoidedMarks(const ChainId& chain, absl::Span<const ObservedRule> rules) {
  std::vector<Damage> damage;
  if (!IsMarkingChain(chain)) return damage;
  uint32_t set = 0;  // by kubelet's rules so far
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule* rule = rules[i].rule();
    if (rule != nullptr && RecognizeKubeletForm(chain, *rule)) {
      set |= netlink::MarksSet(rules[i]);
    }
    const uint32_t voided = set & netlink::MarksCleared(rules[i]);
    if (voided == 0) continue;
    damage.push_back({.condition = Condition::kVoidedMark,
                      .message = absl::StrFormat(
                          "%s clears mark 0x%x after kubelet's rule has set it, so packets that "
                          "match it are not marked: delete it",
                          Quoted(chain, rules[i]), voided),
                      .index = i});
  }
  return damage;
}

}  // namespace kipt::agent
