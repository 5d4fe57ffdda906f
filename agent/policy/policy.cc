// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/policy/native_martians.h"
#include "agent/policy/policy_tables.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;

// What decides about rows.
struct Choice {
  Mode mode = Mode::kLegacy;
  MarkBits bits = {};
  std::optional<ConnLabels> labels = {};

  bool Takes(kep3178::In in) const { return kep3178::Holds(in, mode, labels.has_value()); }
};

// For what can have been left behind.
constexpr Choice kEverything = {.labels = ConnLabels{}};

int BitOf(kep3178::Bit bit, const Choice& choice) {
  const MarkBits& bits = choice.bits;
  const ConnLabels labels = choice.labels.value_or(ConnLabels{});
  switch (bit) {
    case kep3178::Bit::kMasqueradeLabel:
      return labels.masquerade;
    case kep3178::Bit::kDropLabel:
      return labels.drop;
    case kep3178::Bit::kMasquerade:
      return bits.masquerade;
    case kep3178::Bit::kDrop:
      return bits.drop;
    case kep3178::Bit::kNone:
      break;
  }
  return 0;
}

ChainId Id(Family family, netlink::Table table, absl::string_view name) {
  return {.family = family, .table = table, .name = std::string(name)};
}

DesiredChain MakeChain(const kep3178::ChainRow& row, Family family, const Choice& choice) {
  DesiredChain chain{.id = Id(family, row.table, row.name),
                     .reason = std::string(row.reason),
                     .ordered = row.ordered,
                     .rules = {}};
  for (const kep3178::RuleRow& rule : kep3178::kRules) {
    if (rule.table == row.table && rule.chain == row.name && choice.Takes(rule.in) &&
        kep3178::Holds(rule.families, family)) {
      chain.rules.push_back(
          {.rule = rule.form(BitOf(rule.bit, choice)),
           .reason = std::string(rule.reason),
           .shared_with_kube_proxy = rule.writer == kep3178::Writer::kKubeletAndKubeProxy});
    }
  }
  return chain;
}

DesiredJump MakeJump(const kep3178::JumpRow& row, Family family) {
  netlink::Rule rule;
  rule.comment = std::string(row.comment);
  rule.target = netlink::Jump{std::string(row.chain)};
  return {.base_chain = Id(family, row.table, row.base_chain),
          .rule = std::move(rule),
          .reason = std::string(row.reason)};
}

// Where iptables can hold no rule.
Ruleset WithoutRules(const PolicyInput& input) {
  Ruleset ruleset;
  if (input.mode == Mode::kOff) return ruleset;
  for (const Family family : input.families) {
    if (family == Family::kIPv4) ruleset.native = NativeMartians();
    for (const kep3178::ChainRow& row : kep3178::kChains) {
      if (row.name != kHintChain || input.hint != HintPolicy::kAlways) continue;
      ruleset.chains.push_back(MakeChain(row, family, {.mode = input.mode}));
    }
  }
  return ruleset;
}

}  // namespace

absl::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kOff:
      return "off";
    case Mode::kLegacy:
      return "legacy";
    case Mode::kCleanup:
      return "cleanup";
  }
  return "unknown";
}

Mode ModeFor(const featuregates::FeatureGates& gates, bool make_iptables_util_chains) {
  if (!make_iptables_util_chains) return Mode::kOff;
  return gates.Enabled(featuregates::kIPTablesOwnershipCleanup) ? Mode::kCleanup : Mode::kLegacy;
}

std::optional<ConnLabels> LabelsFor(const featuregates::FeatureGates& gates, Mode mode,
                                    ConnLabels labels) {
  if (mode == Mode::kOff || !gates.Enabled(featuregates::kConnLabelMarking)) return std::nullopt;
  return labels;
}

absl::string_view HintPolicyName(HintPolicy policy) {
  return policy == HintPolicy::kAlways ? "always" : "usable";
}

RuleSupport WithoutConnLabels(RuleSupport support, absl::string_view refusal) {
  support.conn_labels = false;
  support.conn_labels_reason = absl::StrCat(
      "a rule was refused because the kernel or iptables lacks the match connlabel: ", refusal);
  return support;
}

Ruleset DesiredRuleset(const PolicyInput& input, const RuleSupport& support) {
  if (!support.xt) return WithoutRules(input);
  Ruleset ruleset;
  const Choice choice = {.mode = input.mode,
                         .bits = input.bits,
                         .labels = support.conn_labels ? input.labels : std::nullopt};
  for (const Family family : input.families) {
    for (const kep3178::ChainRow& row : kep3178::kChains) {
      if (choice.Takes(row.in) && kep3178::Holds(row.families, family)) {
        ruleset.chains.push_back(MakeChain(row, family, choice));
      }
    }
    for (const kep3178::JumpRow& row : kep3178::kJumps) {
      if (choice.Takes(row.in) && kep3178::Holds(row.families, family)) {
        ruleset.jumps.push_back(MakeJump(row, family));
      }
    }
  }
  return ruleset;
}

std::vector<DesiredChain> EveryKubeletChain(Family family) {
  std::vector<DesiredChain> chains;
  for (const kep3178::ChainRow& row : kep3178::kChains) {
    if (kep3178::Holds(row.families, family)) {
      chains.push_back(MakeChain(row, family, kEverything));
    }
  }
  return chains;
}

std::vector<DesiredJump> EveryKubeletJump(Family family) {
  std::vector<DesiredJump> jumps;
  for (const kep3178::JumpRow& row : kep3178::kJumps) {
    if (kep3178::Holds(row.families, family)) jumps.push_back(MakeJump(row, family));
  }
  return jumps;
}

bool IsKubeletChain(const ChainId& chain) {
  return std::any_of(kep3178::kChains.begin(), kep3178::kChains.end(),
                     [&](const kep3178::ChainRow& row) {
                       return row.table == chain.table && row.name == chain.name;
                     });
}

bool IsLabelChain(const ChainId& chain) {
  return std::any_of(kep3178::kChains.begin(), kep3178::kChains.end(),
                     [&](const kep3178::ChainRow& row) {
                       return row.in == kep3178::In::kBothModesLabelled &&
                              row.table == chain.table && row.name == chain.name;
                     });
}

bool IsMarkingChain(const ChainId& chain) {
  return chain.table == netlink::Table::kNat &&
         (chain.name == kMarkMasqChain || chain.name == kMarkDropChain ||
          chain.name == kLabelMasqChain || chain.name == kLabelDropChain);
}

absl::string_view WhyNoLabels(const PolicyInput& input) {
  return input.labels ? "this node has no connection labels" : "ConnLabelMarking is off";
}

std::vector<netlink::ChainQuery> ChainsToRead(Family family) {
  std::map<ChainId, bool> with_rules;
  std::set<ChainId> follow = {Id(family, netlink::Table::kFilter, kFirewallChain)};
  for (const kep3178::KubeProxyRow& row : kep3178::kKubeProxyChains) {
    with_rules[Id(family, row.table, row.chain)] = false;
  }
  with_rules[Id(family, netlink::Table::kFilter, kep3178::kKubeProxyFirewallChain)] = false;
  for (const kep3178::ChainRow& row : kep3178::kChains) {
    with_rules[Id(family, row.table, row.name)] = true;
  }
  for (const kep3178::JumpRow& row : kep3178::kJumps) {
    const ChainId base = Id(family, row.table, row.base_chain);
    with_rules[base] = true;
    follow.insert(base);
  }
  for (const kep3178::BaseChainRow& row : kep3178::kOthersJumpFrom) {
    with_rules[Id(family, row.table, row.chain)] = true;
  }
  std::vector<netlink::ChainQuery> queries;
  queries.reserve(with_rules.size());
  for (const auto& [chain, rules] : with_rules) {
    queries.push_back({.chain = chain, .with_rules = rules, .follow = follow.count(chain) != 0});
  }
  return queries;
}

std::vector<netlink::ChainQuery> ChainsToRead() {
  std::vector<netlink::ChainQuery> queries;
  for (const Family family : netlink::kFamilies) {
    const std::vector<netlink::ChainQuery> more = ChainsToRead(family);
    queries.insert(queries.end(), more.begin(), more.end());
  }
  return queries;
}

std::vector<netlink::ChainQuery> ChainsToRead(const Ruleset& desired) {
  std::vector<netlink::ChainQuery> queries = ChainsToRead();
  for (netlink::ChainQuery& query : queries) {
    query.with_rules =
        query.with_rules &&
        std::none_of(desired.chains.begin(), desired.chains.end(), [&](const DesiredChain& chain) {
          return chain.rules.empty() && chain.id == query.chain;
        });
    // The way to the martian rule matters whoever put that there.
    const bool martians = query.chain.family == Family::kIPv4 &&
                          query.chain.table == netlink::Table::kFilter &&
                          (query.chain.name == "INPUT" || query.chain.name == kFirewallChain);
    query.follow = martians || std::any_of(desired.jumps.begin(), desired.jumps.end(),
                                           [&](const DesiredJump& jump) {
                                             return jump.base_chain == query.chain;
                                           });
  }
  return queries;
}

}  // namespace kipt::agent
