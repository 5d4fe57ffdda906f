// SPDX-License-Identifier: Apache-2.0
#include "netlink/transaction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "netlink/nf_tables.h"

namespace kipt::netlink {
namespace {

ChainId NativeChainId(Family family, const std::string& name) {
  return {.family = family, .table = Table::kFilter, .name = name};
}

std::string NativeText(Family family, const std::string& name) {
  return absl::StrCat("table ", FamilyName(family), " ", name, " (native rules)");
}

struct OperationChain {
  ChainId operator()(const PutNativeTable& put) const {
    return NativeChainId(put.table.family, put.table.name);
  }
  ChainId operator()(const DeleteNativeTable& remove) const {
    return NativeChainId(remove.family, remove.name);
  }
  ChainId operator()(const auto& kind) const { return kind.chain; }
};

struct OperationText {
  std::string operator()(const CreateChain& create) const {
    const bool base = IsBaseChain(create.chain);
    return absl::StrCat(":", create.chain.name, base ? " ACCEPT [0:0]" : " - [0:0]");
  }
  std::string operator()(const AddRule& add) const {
    const std::string rule = ToString(add.chain.family, add.rule);
    if (!add.before) return absl::StrCat("-A ", add.chain.name, " ", rule);
    const std::string number = add.number > 0 ? absl::StrCat(add.number, " ") : "";
    return absl::StrCat("-I ", add.chain.name, " ", number, rule);
  }
  std::string operator()(const DeleteRule& remove) const {
    return absl::StrCat("-D ", remove.chain.name, " ", ToString(remove.chain.family, remove.rule));
  }
  std::string operator()(const DeleteChain& remove) const {
    return absl::StrCat("-X ", remove.chain.name);
  }
  // Without flags.
  std::string operator()(const WakeTable& wake) const {
    return absl::StrCat("nft add table ", FamilyName(wake.chain.family), " ",
                        TableName(wake.chain.table));
  }
  std::string operator()(const PutNativeTable& put) const {
    return NativeText(put.table.family, put.table.name);
  }
  std::string operator()(const DeleteNativeTable& remove) const {
    return NativeText(remove.family, remove.name);
  }
};

// The lines of one table, in the three parts of iptables-restore's input.
struct RestoreTable {
  Table table;
  std::string chains = {};
  std::string rules = {};
  std::string removals = {};
};

using BitName = std::pair<uint32_t, absl::string_view>;

// In the order of their bits, as nft prints them.
constexpr BitName kStates[] = {{NF_CT_STATE_INVALID_BIT, "invalid"},
                               {NF_CT_STATE_BIT(IP_CT_ESTABLISHED), "established"},
                               {NF_CT_STATE_BIT(IP_CT_RELATED), "related"},
                               {NF_CT_STATE_BIT(IP_CT_NEW), "new"},
                               {NF_CT_STATE_UNTRACKED_BIT, "untracked"}};
constexpr BitName kStatuses[] = {{IPS_EXPECTED, "expected"}, {IPS_SEEN_REPLY, "seen-reply"},
                                 {IPS_ASSURED, "assured"},   {IPS_CONFIRMED, "confirmed"},
                                 {IPS_SRC_NAT, "snat"},      {IPS_DST_NAT, "dnat"},
                                 {IPS_DYING, "dying"}};

// "established,new,0x80".
std::string BitNames(uint32_t bits, absl::Span<const BitName> names) {
  std::vector<std::string> parts;
  for (const auto& [bit, name] : names) {
    if ((bits & bit) != 0) parts.emplace_back(name);
    bits &= ~bit;
  }
  if (bits != 0) parts.push_back(absl::StrCat("0x", absl::Hex(bits)));
  return absl::StrJoin(parts, ",");
}

std::string NativeAddress(Family family, absl::string_view what, const PrefixMatch& match) {
  const std::string prefix = ToString(family, match.prefix);
  // A single address has no length.
  return absl::StrCat(FamilyName(family), " ", what, " ", match.negated ? "!= " : "",
                      absl::StripSuffix(prefix, family == Family::kIPv4 ? "/32" : "/128"));
}

}  // namespace

std::string ToString(Family family, const NativeDrop& drop) {
  std::vector<std::string> parts;
  if (drop.destination) parts.push_back(NativeAddress(family, "daddr", *drop.destination));
  if (drop.source) parts.push_back(NativeAddress(family, "saddr", *drop.source));
  if (drop.state_any != 0) {
    parts.push_back(absl::StrCat("ct state ", BitNames(drop.state_any, kStates)));
  }
  if (drop.state_none != 0) {
    parts.push_back(absl::StrCat("ct state ! ", BitNames(drop.state_none, kStates)));
  }
  if (drop.status_none != 0) {
    parts.push_back(absl::StrCat("ct status ! ", BitNames(drop.status_none, kStatuses)));
  }
  parts.emplace_back("counter drop");
  if (!drop.comment.empty()) parts.push_back(absl::StrCat("comment \"", drop.comment, "\""));
  return absl::StrJoin(parts, " ");
}

bool IsNative(const Operation& operation) {
  return std::holds_alternative<PutNativeTable>(operation) ||
         std::holds_alternative<DeleteNativeTable>(operation);
}

ChainId ChainOf(const Operation& operation) { return std::visit(OperationChain{}, operation); }

std::string ToString(const Operation& operation) { return std::visit(OperationText{}, operation); }

std::string ToRestoreText(const Transaction& transaction, Family family) {
  // In the order in which the transaction first names them: to iptables-restore each table is a
  // transaction of its own, and the planner has put first what must come first.
  std::vector<RestoreTable> tables;
  for (const Operation& operation : transaction.operations) {
    const ChainId& chain = ChainOf(operation);
    if (chain.family != family || IsNative(operation) ||
        std::holds_alternative<WakeTable>(operation)) {
      continue;
    }
    auto table = std::find_if(tables.begin(), tables.end(), [&](const RestoreTable& candidate) {
      return candidate.table == chain.table;
    });
    if (table == tables.end()) table = tables.insert(tables.end(), {.table = chain.table});
    const std::string line = absl::StrCat(ToString(operation), "\n");
    if (const auto* remove = std::get_if<DeleteRule>(&operation)) {
      absl::StrAppend(&table->rules, "-D ", chain.name, " ", remove->number, "\n");
    } else if (std::holds_alternative<AddRule>(operation)) {
      table->rules += line;
    } else if (std::holds_alternative<DeleteChain>(operation)) {
      table->removals += line;
    } else if (!IsBaseChain(chain)) {
      table->chains += line;
    }
  }
  std::string text;
  for (const RestoreTable& table : tables) {
    absl::StrAppend(&text, "*", TableName(table.table), "\n", table.chains, table.rules,
                    table.removals, "COMMIT\n");
  }
  return text;
}

}  // namespace kipt::netlink
