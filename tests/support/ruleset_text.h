// SPDX-License-Identifier: Apache-2.0
//
// Whole rulesets and native tables as text, which only tests print.
#ifndef KIPT_TESTS_SUPPORT_RULESET_TEXT_H_
#define KIPT_TESTS_SUPPORT_RULESET_TEXT_H_

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

// As iptables-save would print these chains, one *table block per family and table, chains in name
// order; "# ip" or "# ip6" heads each block.
inline std::string ToString(const Snapshot& snapshot) {
  struct Block {
    std::string chains;
    std::string rules;
  };
  std::map<std::pair<Family, Table>, Block> blocks;
  for (const auto& [id, chain] : snapshot.chains) {
    Block& block = blocks[{id.family, id.table}];
    absl::StrAppend(&block.chains, ":", id.name, " - [0:0]\n");
    if (IsBaseChain(id) && !chain.hooked) {
      absl::StrAppend(&block.chains, "# ", id.name, " is not on its hook\n");
    }
    for (const ObservedRule& rule : chain.rules) {
      absl::StrAppend(&block.rules, "-A ", id.name, " ", ToString(id.family, rule), "\n");
    }
  }
  std::string text;
  for (const auto& [table, block] : blocks) {
    absl::StrAppend(&text, "# ", FamilyName(table.first), "\n*", TableName(table.second), "\n",
                    block.chains, block.rules, "COMMIT\n");
  }
  for (const auto& [table, flags] : snapshot.dormant) {
    absl::StrAppend(&text, "# ", FamilyName(table.first), " ", TableName(table.second),
                    " is dormant, flags ", "0x", absl::Hex(flags), "\n");
  }
  return text;
}

// As nft(8) names them where no other name but `filter` is near.
inline std::string HookText(uint32_t hook, int32_t priority) {
  constexpr const char* kHooks[] = {"prerouting", "input", "forward", "output", "postrouting"};
  constexpr int32_t kNear = 10;
  std::string text = absl::StrCat("hook ", kHooks[hook], " priority ");
  if (std::abs(priority) > kNear) return absl::StrCat(text, priority);
  text += "filter";
  if (priority != 0) absl::StrAppend(&text, priority < 0 ? " - " : " + ", std::abs(priority));
  return text;
}

// As `nft --stateless list table` (1.0.6) prints it; `nft -f` takes it.
inline std::string ToString(const NativeTable& table) {
  std::string text = absl::StrCat("table ", FamilyName(table.family), " ", table.name, " {\n");
  for (const NativeChain& chain : table.chains) {
    if (&chain != &table.chains.front()) text += '\n';
    absl::StrAppend(&text, "\tchain ", chain.name, " {\n\t\ttype filter ",
                    HookText(chain.hook, chain.priority), "; policy accept;\n");
    for (const NativeDrop& drop : chain.rules) {
      absl::StrAppend(&text, "\t\t", ToString(table.family, drop), "\n");
    }
    text += "\t}\n";
  }
  text += "}\n";
  return text;
}

}  // namespace kipt::netlink

#endif  // KIPT_TESTS_SUPPORT_RULESET_TEXT_H_
