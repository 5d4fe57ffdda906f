// SPDX-License-Identifier: Apache-2.0
//
// Snapshots written down by hand: chains with rules, numbered with handles from the top.
#ifndef KIPT_TESTS_SUPPORT_OBSERVED_H_
#define KIPT_TESTS_SUPPORT_OBSERVED_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "agent/policy/policy.h"
#include "netlink/ruleset.h"
#include "tests/support/ruleset_text.h"

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

// As input for iptables-restore --noflush, one *table block per family and table; "# ip" or "# ip6"
// heads each block.
inline std::string ToText(const agent::Ruleset& ruleset) {
  struct Block {
    std::string chains;
    std::string rules;
    std::string jumps;
  };
  std::map<std::pair<netlink::Family, netlink::Table>, Block> blocks;
  for (const agent::DesiredChain& chain : ruleset.chains) {
    Block& block = blocks[{chain.id.family, chain.id.table}];
    absl::StrAppend(&block.chains, ":", chain.id.name, " - [0:0]\n");
    for (const agent::DesiredRule& rule : chain.rules) {
      absl::StrAppend(&block.rules, "-A ", chain.id.name, " ",
                      netlink::ToString(chain.id.family, rule.rule), "\n");
    }
  }
  for (const agent::DesiredJump& jump : ruleset.jumps) {
    const netlink::ChainId& base = jump.base_chain;
    absl::StrAppend(&blocks[{base.family, base.table}].jumps, "-I ", base.name, " ",
                    netlink::ToString(base.family, jump.rule), "\n");
  }
  std::string text;
  for (const auto& [key, block] : blocks) {
    absl::StrAppend(&text, "# ", netlink::FamilyName(key.first), "\n*",
                    netlink::TableName(key.second), "\n", block.chains, block.rules, block.jumps,
                    "COMMIT\n");
  }
  if (ruleset.native) absl::StrAppend(&text, ToString(*ruleset.native));
  return text;
}

class Observed {
 public:
  Observed& Chain(netlink::ChainId id, const std::vector<RuleContent>& rules = {},
                  std::optional<bool> hooked = {}) {
    const bool base = netlink::IsBaseChain(id);
    netlink::ObservedChain chain{.hooked = hooked.value_or(base), .rules = {}};
    for (const RuleContent& rule : rules) chain.rules.push_back({++handle_, rule});
    snapshot_.chains[std::move(id)] = std::move(chain);
    return *this;
  }

  Observed& Remove(const netlink::ChainId& id) {
    snapshot_.chains.erase(id);
    return *this;
  }

  Observed& Native(const netlink::ObservedNativeTable& table = {}) {
    snapshot_.native = table;
    return *this;
  }

  const netlink::Snapshot& snapshot() const { return snapshot_; }

 private:
  netlink::RuleHandle handle_ = 0;
  netlink::Snapshot snapshot_;
};

inline agent::PolicyInput Wanting(agent::Mode mode, absl::Span<const netlink::Family> families,
                                  agent::MarkBits bits = {},
                                  std::optional<agent::ConnLabels> labels = {}) {
  return {
      .mode = mode, .families = {families.begin(), families.end()}, .bits = bits, .labels = labels};
}

// The desired state of `input`, as if just made.
inline Observed Made(const agent::PolicyInput& input, const agent::RuleSupport& support = {}) {
  const agent::Ruleset ruleset = agent::DesiredRuleset(input, support);
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

// Other programs' rules.
inline netlink::OpaqueRule ForeignAccept() {
  return {.text = "-p tcp -j ACCEPT", .jump = {}, .terminal = true};
}
// ct state vmap { ... }
inline netlink::OpaqueRule VerdictMap() {
  return {.text = "[nft ct] [nft lookup]", .perhaps_unconditional = true, .perhaps_terminal = true};
}
inline netlink::OpaqueRule ForeignAcceptAll() {
  return {.text = "-j ACCEPT", .jump = {}, .unconditional = true, .terminal = true};
}
// Of kube-proxy's IPVS mode, since 1.19 above its masquerade rules.
inline netlink::OpaqueRule HairpinMasquerade() {
  return {.text = "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
          .jump = {},
          .terminal = true,
          .target = "MASQUERADE",
          .set = "KUBE-LOOP-BACK",
          .set_directions = "dst,dst,src"};
}
// The mark that the connection had: any.
inline netlink::OpaqueRule RestoredMark() {
  return {.text = "-j CONNMARK --restore-mark",
          .jump = {},
          .unconditional = true,
          .marks = {.set = netlink::kAllMarks}};
}
inline netlink::OpaqueRule ForeignLog() {
  return {.text = "-j LOG", .jump = {}, .unconditional = true, .decides = false};
}
inline netlink::Rule SettingMark(uint32_t value, uint32_t mask) {
  return {.target = netlink::SetMark{.value = value, .mask = mask}};
}
inline netlink::Rule BareReturn() { return {.target = netlink::Return{}}; }
inline netlink::Rule BareDrop(std::string comment = "") {
  return {.comment = std::move(comment), .target = netlink::Drop{}};
}
inline netlink::Rule JumpTo(std::string chain, std::string comment = "") {
  return {.comment = std::move(comment), .target = netlink::Jump{std::move(chain)}};
}

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using netlink::ChainId;
using netlink::Family;
using netlink::Table;
using namespace testing;  // NOLINT(google-build-using-namespace): this file
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_OBSERVED_H_
