// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "agent/policy/ownership.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::Table;

// In which tables a chain of that name is kube-proxy's.
std::set<Table> TablesOf(const std::string& name) {
  std::set<Table> tables;
  for (const Table table : netlink::kTables) {
    const bool ip = IsKubeProxyChain({netlink::Family::kIPv4, table, name});
    EXPECT_EQ(IsKubeProxyChain({netlink::Family::kIPv6, table, name}), ip) << name;
    if (ip) tables.insert(table);
  }
  return tables;
}

// pkg/proxy/iptables/proxier.go and pkg/proxy/ipvs/proxier.go, releases 1.17 to 1.34.
TEST(KubeProxyChainsTest, AreTheOnesThatKubeProxyMakesInTheTablesWhereItDoes) {
  struct Row {
    const char* name;
    std::set<Table> tables;
  };
  const Row rows[] = {
      {"KUBE-SERVICES", {Table::kNat, Table::kFilter}},
      {"KUBE-PROXY-CANARY", {Table::kMangle, Table::kNat, Table::kFilter}},
      {"KUBE-FORWARD", {Table::kFilter}},
      {"KUBE-PROXY-FIREWALL", {Table::kFilter}},
      {"KUBE-NODEPORTS", {Table::kNat, Table::kFilter}},
      {"KUBE-EXTERNAL-SERVICES", {Table::kFilter}},
      {"KUBE-FIREWALL", {Table::kNat}},  // in filter it is kubelet's
      {"KUBE-LOAD-BALANCER", {Table::kNat}},
      {"KUBE-NODE-PORT", {Table::kNat, Table::kFilter}},
      {"KUBE-SOURCE-RANGES-FIREWALL", {Table::kFilter}},
      {"KUBE-IPVS-FILTER", {Table::kFilter}},
      {"KUBE-IPVS-OUT-FILTER", {Table::kFilter}},
      {"KUBE-SVC-TCOU7JCQXEZGVUNU", {Table::kNat}},
      {"KUBE-SEP-LLMSFKRLGJ6BVN6Y", {Table::kNat}},
      {"KUBE-FW-IQXQGEY2NRLIYFSQ", {Table::kNat}},
      {"KUBE-XLB-IQXQGEY2NRLIYFSQ", {Table::kNat}},
      {"KUBE-EXT-IQXQGEY2NRLIYFSQ", {Table::kNat}},
      {"KUBE-SVL-IQXQGEY2NRLIYFSQ", {Table::kNat}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(TablesOf(row.name), row.tables) << row.name;
  }
}

TEST(KubeProxyChainsTest, AreNotOthers) {
  for (const char* name : {"", "INPUT", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-POSTROUTING",
                           "KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-ROUTER-INPUT",
                           "KUBE-SERVICES-2", "KUBE-SV", "cali-KUBE-SVC-X"}) {
    EXPECT_TRUE(TablesOf(name).empty()) << name;
  }
}

}  // namespace
}  // namespace kipt::agent
