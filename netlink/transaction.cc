// SPDX-License-Identifier: Apache-2.0
#include "netlink/transaction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/base_chains.h"

namespace kipt::netlink {
namespace {

std::string AddText(const AddRule& add) {
  const std::string rule = ToString(add.chain.family, add.rule);
  if (!add.before) return absl::StrCat("-A ", add.chain.name, " ", rule);
  const std::string number = add.number > 0 ? absl::StrCat(add.number, " ") : "";
  return absl::StrCat("-I ", add.chain.name, " ", number, rule);
}

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
    const bool base = FindBaseChain(create.chain.table, create.chain.name) != nullptr;
    return absl::StrCat(":", create.chain.name, base ? " ACCEPT [0:0]" : " - [0:0]");
  }
  std::string operator()(const AddRule& add) const { return AddText(add); }
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

// The lines of one table, in the three parts in which iptables-restore wants them.
struct RestoreTable {
  explicit RestoreTable(Table the_table) : table(the_table) {}

  void operator()(const CreateChain& create) {
    if (FindBaseChain(create.chain.table, create.chain.name) != nullptr) return;
    absl::StrAppend(&chains, ":", create.chain.name, " - [0:0]\n");
  }
  void operator()(const AddRule& add) { absl::StrAppend(&rules, AddText(add), "\n"); }
  void operator()(const DeleteRule& remove) {
    absl::StrAppend(&rules, "-D ", remove.chain.name, " ", remove.number, "\n");
  }
  void operator()(const DeleteChain& remove) {
    absl::StrAppend(&removals, "-X ", remove.chain.name, "\n");
  }
  void operator()(const auto& /*not of iptables*/) {}

  Table table;
  std::string chains;
  std::string rules;
  std::string removals;
};

}  // namespace

bool IsNative(const Operation& operation) {
  return std::holds_alternative<PutNativeTable>(operation) ||
         std::holds_alternative<DeleteNativeTable>(operation);
}

ChainId ChainOf(const Operation& operation) { return std::visit(OperationChain{}, operation); }

std::string ToString(const Operation& operation) { return std::visit(OperationText{}, operation); }

std::string ToRestoreText(const Transaction& transaction, Family family) {
  // Tables come in the order in which the transaction first names them: each is a transaction of
  // its own to iptables-restore, and the planner has put first what must stand first.
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
    if (table == tables.end()) table = tables.emplace(tables.end(), chain.table);
    std::visit([&](const auto& kind) { (*table)(kind); }, operation);
  }
  std::string text;
  for (const RestoreTable& table : tables) {
    absl::StrAppend(&text, "*", TableName(table.table), "\n", table.chains, table.rules,
                    table.removals, "COMMIT\n");
  }
  return text;
}

}  // namespace kipt::netlink
