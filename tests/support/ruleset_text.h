// SPDX-License-Identifier: Apache-2.0
//
// Whole rulesets and native tables as text, which only tests print.
#ifndef KIPT_TESTS_SUPPORT_RULESET_TEXT_H_
#define KIPT_TESTS_SUPPORT_RULESET_TEXT_H_

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

using ChainEntry = std::pair<const ChainId, ObservedChain>;

// One table block of ToString(Snapshot); `chains` all belong to it.
inline void AppendTable(const std::vector<const ChainEntry*>& chains, std::string& text) {
  const ChainId& first = chains.front()->first;
  absl::StrAppend(&text, "# ", FamilyName(first.family), "\n*", TableName(first.table), "\n");
  for (const ChainEntry* entry : chains) {
    const auto& [id, chain] = *entry;
    absl::StrAppend(&text, ":", id.name, " - [0:0]\n");
    if (FindBaseChain(id.table, id.name) != nullptr && !chain.hooked) {
      absl::StrAppend(&text, "# ", id.name, " is not on its hook\n");
    }
  }
  for (const ChainEntry* entry : chains) {
    const auto& [id, chain] = *entry;
    for (const ObservedRule& rule : chain.rules) {
      absl::StrAppend(&text, "-A ", id.name, " ", ToString(id.family, rule), "\n");
    }
  }
  text += "COMMIT\n";
}

// As iptables-save would print these chains, one *table block per family and table, chains in name
// order; "# ip" or "# ip6" heads each block.
inline std::string ToString(const Snapshot& snapshot) {
  std::string text;
  std::vector<const ChainEntry*> block;
  for (const ChainEntry& entry : snapshot.chains) {
    if (!block.empty() && (block.front()->first.family != entry.first.family ||
                           block.front()->first.table != entry.first.table)) {
      AppendTable(block, text);
      block.clear();
    }
    block.push_back(&entry);
  }
  if (!block.empty()) AppendTable(block, text);
  for (const auto& [table, flags] : snapshot.dormant) {
    absl::StrAppend(&text, "# ", FamilyName(table.first), " ", TableName(table.second),
                    " is dormant, flags ", "0x", absl::Hex(flags), "\n");
  }
  return text;
}

inline constexpr std::array<absl::string_view, NF_INET_NUMHOOKS> kHooks = {
    "prerouting", "input", "forward", "output", "postrouting"};

inline std::string HookName(uint32_t hook) {
  return hook < kHooks.size() ? std::string(kHooks[hook]) : absl::StrCat(hook);
}

// Where nft(8) counts priorities from; `hook` where the name is for one hook only.
struct PriorityName {
  int32_t priority;
  absl::string_view name;
  std::optional<uint32_t> hook;
};
inline constexpr PriorityName kPriorities[] = {
    {NF_IP_PRI_RAW, "raw", std::nullopt},
    {NF_IP_PRI_MANGLE, "mangle", std::nullopt},
    {NF_IP_PRI_NAT_DST, "dstnat", NF_INET_PRE_ROUTING},
    {NF_IP_PRI_FILTER, "filter", std::nullopt},
    {NF_IP_PRI_SECURITY, "security", std::nullopt},
    {NF_IP_PRI_NAT_SRC, "srcnat", NF_INET_POST_ROUTING},
};

inline std::string PriorityText(uint32_t hook, int32_t priority) {
  constexpr int32_t kNear = 10;
  for (const PriorityName& known : kPriorities) {
    if (known.hook && *known.hook != hook) continue;
    const int64_t offset = int64_t{priority} - known.priority;
    if (offset == 0) return std::string(known.name);
    if (std::abs(offset) <= kNear) {
      return absl::StrCat(known.name, offset < 0 ? " - " : " + ", std::abs(offset));
    }
  }
  return absl::StrCat(priority);
}

// As `nft --stateless list table` (1.0.6) prints it; `nft -f` takes it.
inline std::string ToString(const NativeTable& table) {
  std::string text = absl::StrCat("table ", FamilyName(table.family), " ", table.name, " {\n");
  for (const NativeChain& chain : table.chains) {
    if (&chain != &table.chains.front()) text += '\n';
    absl::StrAppend(&text, "\tchain ", chain.name, " {\n\t\ttype filter hook ",
                    HookName(chain.hook), " priority ", PriorityText(chain.hook, chain.priority),
                    "; policy accept;\n");
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
