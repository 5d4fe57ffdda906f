// SPDX-License-Identifier: Apache-2.0
//
// Snapshots written down by hand: chains with rules, numbered with handles from the top.
#ifndef KIPT_TESTS_SUPPORT_OBSERVED_H_
#define KIPT_TESTS_SUPPORT_OBSERVED_H_

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/policy/policy.h"
#include "netlink/ruleset.h"

namespace kipt::testing {

using RuleContent = std::variant<netlink::Rule, netlink::OpaqueRule>;

inline netlink::ChainId Filter(std::string name, netlink::Family family = netlink::Family::kIPv4) {
  return {.family = family, .table = netlink::Table::kFilter, .name = std::move(name)};
}
inline netlink::ChainId Nat(std::string name, netlink::Family family = netlink::Family::kIPv4) {
  return {.family = family, .table = netlink::Table::kNat, .name = std::move(name)};
}
inline netlink::ChainId Mangle(std::string name, netlink::Family family = netlink::Family::kIPv4) {
  return {.family = family, .table = netlink::Table::kMangle, .name = std::move(name)};
}

class Observed {
 public:
  Observed& Chain(netlink::ChainId id, const std::vector<RuleContent>& rules = {},
                  bool hooked = true) {
    netlink::ObservedChain chain{.hooked = hooked, .rules = {}};
    for (const RuleContent& rule : rules) chain.rules.push_back({++handle_, rule});
    snapshot_.chains[std::move(id)] = std::move(chain);
    return *this;
  }

  const netlink::Snapshot& snapshot() const { return snapshot_; }

 private:
  netlink::RuleHandle handle_ = 0;
  netlink::Snapshot snapshot_;
};

// Everything of `ruleset`, as if just made.
inline Observed Made(const agent::Ruleset& ruleset) {
  Observed observed;
  for (const agent::DesiredChain& chain : ruleset.chains) {
    std::vector<RuleContent> rules;
    for (const agent::DesiredRule& rule : chain.rules) rules.emplace_back(rule.rule);
    observed.Chain(chain.id, rules);
  }
  std::map<netlink::ChainId, std::vector<RuleContent>> jumps;
  for (const agent::DesiredJump& jump : ruleset.jumps) {
    jumps[jump.base_chain].emplace_back(jump.rule);
  }
  for (const auto& [base_chain, rules] : jumps) observed.Chain(base_chain, rules);
  return observed;
}

// Somebody else's rules.
inline netlink::OpaqueRule ForeignAccept() {
  return {.text = "-p tcp -j ACCEPT",
          .jump = {},
          .unconditional = false,
          .decides = true,
          .terminal = true};
}
inline netlink::OpaqueRule ForeignAcceptAll() {
  return {
      .text = "-j ACCEPT", .jump = {}, .unconditional = true, .decides = true, .terminal = true};
}
inline netlink::OpaqueRule ForeignLog() {
  return {.text = "-j LOG", .jump = {}, .unconditional = true, .decides = false, .terminal = false};
}
inline netlink::Rule BareReturn() {
  netlink::Rule rule;
  rule.target = netlink::Return{};
  return rule;
}
inline netlink::Rule BareDrop(std::string comment = "") {
  netlink::Rule rule;
  rule.comment = std::move(comment);
  rule.target = netlink::Drop{};
  return rule;
}
inline netlink::Rule JumpTo(std::string chain, std::string comment = "") {
  netlink::Rule rule;
  rule.comment = std::move(comment);
  rule.target = netlink::Jump{std::move(chain)};
  return rule;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_OBSERVED_H_
