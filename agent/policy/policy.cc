// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/policy_tables.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using kep3178::ChainRow;
using kep3178::JumpRow;
using netlink::ChainId;
using netlink::Family;
using netlink::Table;

// What decides about rows.
struct Choice {
  Mode mode = Mode::kLegacy;
  MarkBits bits = {};
  std::optional<ConnLabels> labels = {};

  template <typename Row>
  bool Takes(const Row& row, Family family) const {
    return IsIn(row, mode, labels.has_value()) && IsFor(row, family);
  }

  int NumberOf(kep3178::Bit bit) const {
    const ConnLabels label = labels.value_or(ConnLabels{});
    const std::array in_order = {0, bits.masquerade, bits.drop, label.masquerade, label.drop};
    return in_order.at(static_cast<size_t>(bit));
  }
};

// Selects every row, to find leftovers of any configuration.
constexpr Choice kEverything = {.labels = ConnLabels{}};

template <typename Row>
ChainId Id(Family family, const Row& row) {
  return {.family = family, .table = row.table, .name = std::string(row.chain)};
}

DesiredChain MakeChain(const ChainRow& row, Family family, const Choice& choice) {
  DesiredChain chain{.id = Id(family, row), .reason = row.reason};
  for (const kep3178::RuleRow& rule : kep3178::kRules) {
    if (!IsOf(rule, chain.id) || !choice.Takes(rule, family)) continue;
    chain.rules.push_back(
        {.rule = rule.form(choice.NumberOf(rule.bit)),
         .reason = rule.reason,
         .shared_with_kube_proxy = rule.writer == kep3178::Writer::kKubeletAndKubeProxy});
    // Which of several DROPs comes first does not matter.
    chain.ordered |= chain.rules.back().rule.target != chain.rules.front().rule.target;
  }
  return chain;
}

DesiredJump MakeJump(const JumpRow& row, Family family) {
  return {.base_chain = Id(family, row), .rule = RuleOf(row), .reason = row.reason};
}

}  // namespace

absl::string_view ModeName(Mode mode) {
  constexpr std::array<absl::string_view, 3> kInOrder = {"off", "legacy", "cleanup"};
  return kInOrder.at(static_cast<size_t>(mode));
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
  Ruleset ruleset;
  const Choice choice = {.mode = input.mode,
                         .bits = input.bits,
                         .labels = support.conn_labels ? input.labels : std::nullopt};
  for (const Family family : input.families) {
    for (const ChainRow& row : kep3178::kChains) {
      const bool possible =
          support.xt || (row.chain == kHintChain && input.hint == HintPolicy::kAlways);
      if (possible && choice.Takes(row, family)) {
        ruleset.chains.push_back(MakeChain(row, family, choice));
      }
    }
    for (const JumpRow& row : kep3178::kJumps) {
      if (support.xt && choice.Takes(row, family)) ruleset.jumps.push_back(MakeJump(row, family));
    }
    if (!support.xt && input.mode != Mode::kOff && family == Family::kIPv4) {
      ruleset.native = NativeMartians();
    }
  }
  return ruleset;
}

std::vector<DesiredChain> EveryKubeletChain(Family family) {
  std::vector<DesiredChain> chains;
  for (const ChainRow& row : kep3178::kChains) {
    if (IsFor(row, family)) chains.push_back(MakeChain(row, family, kEverything));
  }
  return chains;
}

std::vector<DesiredJump> EveryKubeletJump(Family family) {
  std::vector<DesiredJump> jumps;
  for (const JumpRow& row : kep3178::kJumps) {
    if (IsFor(row, family)) jumps.push_back(MakeJump(row, family));
  }
  return jumps;
}

std::vector<netlink::ChainQuery> ChainsToRead(absl::Span<const Family> families) {
  std::vector<netlink::ChainQuery> queries;
  const auto ask = [&](const auto& row, bool with_rules, bool follow) {
    for (const Family family : families) {
      queries.push_back({.chain = Id(family, row), .with_rules = with_rules, .follow = follow});
    }
  };
  // Of a chain that is in several tables, the first counts.
  for (const auto& row : kep3178::kJumps) ask(row, true, true);
  for (const auto& row : kep3178::kChains) ask(row, true, row.chain == kFirewallChain);
  for (const auto& row : kep3178::kOthersJumpFrom) ask(row, true, false);
  for (const auto& row : kep3178::kKubeProxyChains) {
    if (row.tells != kep3178::Shows::kNothing) ask(row, false, false);
  }
  absl::c_stable_sort(queries, [](const netlink::ChainQuery& a, const netlink::ChainQuery& b) {
    return a.chain < b.chain;
  });
  const auto repeated = std::unique(queries.begin(), queries.end(),
                                    [](const netlink::ChainQuery& a, const netlink::ChainQuery& b) {
                                      return a.chain == b.chain;
                                    });
  queries.erase(repeated, queries.end());
  return queries;
}

std::vector<netlink::ChainQuery> ChainsToRead(const Ruleset& desired) {
  static const auto& all = *new std::vector<netlink::ChainQuery>(ChainsToRead());
  std::vector<netlink::ChainQuery> queries = all;
  for (netlink::ChainQuery& query : queries) {
    query.with_rules =
        query.with_rules && absl::c_none_of(desired.chains, [&](const DesiredChain& chain) {
          return chain.rules.empty() && chain.id == query.chain;
        });
    // The way to the martian rule matters, whichever program put that there.
    const bool martians = query.chain.family == Family::kIPv4 &&
                          query.chain.table == Table::kFilter &&
                          (query.chain.name == "INPUT" || query.chain.name == kFirewallChain);
    query.follow = martians || absl::c_any_of(desired.jumps, [&](const DesiredJump& jump) {
                     return jump.base_chain == query.chain;
                   });
  }
  return queries;
}

}  // namespace kipt::agent
