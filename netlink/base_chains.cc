// SPDX-License-Identifier: Apache-2.0
#include "netlink/base_chains.h"

namespace kipt::netlink {
namespace {

constexpr uint32_t kPrerouting = 0;
constexpr uint32_t kInput = 1;
constexpr uint32_t kForward = 2;
constexpr uint32_t kOutput = 3;
constexpr uint32_t kPostrouting = 4;

constexpr BaseChain kBaseChains[] = {
    {Table::kFilter, "INPUT", kInput, 0, "filter"},
    {Table::kFilter, "FORWARD", kForward, 0, "filter"},
    {Table::kFilter, "OUTPUT", kOutput, 0, "filter"},
    {Table::kNat, "PREROUTING", kPrerouting, -100, "nat"},
    {Table::kNat, "INPUT", kInput, 100, "nat"},
    {Table::kNat, "OUTPUT", kOutput, -100, "nat"},
    {Table::kNat, "POSTROUTING", kPostrouting, 100, "nat"},
    {Table::kMangle, "PREROUTING", kPrerouting, -150, "filter"},
    {Table::kMangle, "INPUT", kInput, -150, "filter"},
    {Table::kMangle, "FORWARD", kForward, -150, "filter"},
    // "route": a changed mark makes the kernel route the packet again.
    {Table::kMangle, "OUTPUT", kOutput, -150, "route"},
    {Table::kMangle, "POSTROUTING", kPostrouting, -150, "filter"},
};

}  // namespace

std::optional<Table> FindTable(absl::string_view name) {
  for (const Table table : kTables) {
    if (TableName(table) == name) return table;
  }
  return std::nullopt;
}

const BaseChain* FindBaseChain(Table table, absl::string_view name) {
  for (const BaseChain& chain : kBaseChains) {
    if (chain.table == table && name == chain.name) return &chain;
  }
  return nullptr;
}

}  // namespace kipt::netlink
