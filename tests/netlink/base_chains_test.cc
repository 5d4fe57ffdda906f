// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "netlink/ruleset.h"
// After netinet/in.h.
#include <linux/netfilter_ipv4.h>

#include <string>
#include <vector>

namespace kipt::netlink {
namespace {

TEST(BaseChainsTest, AreThoseOfIptables) {
  struct Row {
    Table table;
    std::string name;
    uint32_t hook;
    int32_t priority;
    std::string type;
  };
  const std::vector<Row> rows = {
      {Table::kFilter, "INPUT", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, "filter"},
      {Table::kFilter, "FORWARD", NF_INET_FORWARD, NF_IP_PRI_FILTER, "filter"},
      {Table::kFilter, "OUTPUT", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER, "filter"},
      {Table::kNat, "PREROUTING", NF_INET_PRE_ROUTING, NF_IP_PRI_NAT_DST, "nat"},
      {Table::kNat, "INPUT", NF_INET_LOCAL_IN, NF_IP_PRI_NAT_SRC, "nat"},
      {Table::kNat, "OUTPUT", NF_INET_LOCAL_OUT, NF_IP_PRI_NAT_DST, "nat"},
      {Table::kNat, "POSTROUTING", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, "nat"},
      {Table::kMangle, "PREROUTING", NF_INET_PRE_ROUTING, NF_IP_PRI_MANGLE, "filter"},
      {Table::kMangle, "INPUT", NF_INET_LOCAL_IN, NF_IP_PRI_MANGLE, "filter"},
      {Table::kMangle, "FORWARD", NF_INET_FORWARD, NF_IP_PRI_MANGLE, "filter"},
      {Table::kMangle, "OUTPUT", NF_INET_LOCAL_OUT, NF_IP_PRI_MANGLE, "route"},
      {Table::kMangle, "POSTROUTING", NF_INET_POST_ROUTING, NF_IP_PRI_MANGLE, "filter"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const BaseChain* chain = FindBaseChain(row.table, row.name);
    ASSERT_NE(chain, nullptr);
    EXPECT_EQ(chain->hook, row.hook);
    EXPECT_EQ(chain->priority, row.priority);
    EXPECT_EQ(chain->type, row.type);
  }
}

TEST(BaseChainsTest, AreOnlyThose) {
  EXPECT_EQ(FindBaseChain(Table::kFilter, "PREROUTING"), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kNat, "FORWARD"), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kFilter, "input"), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kFilter, ""), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kFilter, "DOCKER-USER"), nullptr);
}

}  // namespace
}  // namespace kipt::netlink
