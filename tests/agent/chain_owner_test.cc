// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <gtest/gtest.h>

#include <string>

#include "agent/policy/kube_proxy_chains.h"

namespace kipt::agent {
namespace {

const netlink::TableId kNat = {"ip", "nat"};
const netlink::TableId kFilter = {"ip", "filter"};

TEST(ChainOwnerTest, TellsTheTwoKubeFirewallsApart) {
  EXPECT_EQ(OwnerOfChain(kFilter, "KUBE-FIREWALL"), Owner::kKubelet);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-FIREWALL"), Owner::kKubeProxyIpvs);
}

TEST(ChainOwnerTest, DoesNotTakeEveryKubeForKubernetes) {
  for (const char* chain : {"KUBE-ROUTER-INPUT", "KUBE-POD-FW-ABC", "KUBE-NWPLCY-DEFAULT"}) {
    EXPECT_EQ(OwnerOfChain(kFilter, chain), Owner::kKubeRouter) << chain;
  }
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-HP-ABC"), Owner::kHostPorts);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-HOSTPORTS"), Owner::kHostPorts);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SOMETHING-NEW"), Owner::kUnknown);
}

TEST(ChainOwnerTest, KnowsTheNeighboursByTheirNames) {
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SVC-GNZBNJ2PO5MGZ6GT"), Owner::kKubeProxy);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-LOAD-BALANCER"), Owner::kKubeProxyIpvs);
  EXPECT_EQ(OwnerOfChain(kNat, "CNI-DN-0123"), Owner::kPortmap);
  EXPECT_EQ(OwnerOfChain(kNat, "CRIO-HOSTPORTS-MASQ"), Owner::kCrio);
  EXPECT_EQ(OwnerOfChain(kFilter, "cali-INPUT"), Owner::kCalico);
  EXPECT_EQ(OwnerOfChain(kFilter, "OLD_CILIUM_FORWARD"), Owner::kCilium);
  EXPECT_EQ(OwnerOfChain(kFilter, "WEAVE-NPC"), Owner::kWeave);
  EXPECT_EQ(OwnerOfChain(kNat, "IP-MASQ-AGENT"), Owner::kIpMasqAgent);
  EXPECT_EQ(OwnerOfChain({"ip", "kube-proxy"}, "masquerading"), Owner::kKubeProxyNftables);
  EXPECT_EQ(OwnerOfChain({"ip6", "k8s_svc6"}, "z_dispatch_svc"), Owner::kKpng);
  EXPECT_EQ(OwnerOfChain({"inet", "firewalld"}, "filter_INPUT"), Owner::kFirewalld);
}

struct RuleRow {
  std::string name;
  netlink::TableId table;
  std::string chain;
  bool base;
  std::string rule;
  std::string jump;
  Owner owner;
};
void PrintTo(const RuleRow& row, std::ostream* out) { *out << row.name; }

class RuleOwnerTest : public ::testing::TestWithParam<RuleRow> {};

TEST_P(RuleOwnerTest, IsToldByChainCommentAndTarget) {
  const RuleRow& row = GetParam();
  netlink::SurveyRule rule;
  rule.text = row.rule;
  rule.jump = row.jump;
  EXPECT_EQ(OwnerOfRule(row.table, row.chain, row.base, rule, ParseRuleWords(rule.text)),
            row.owner);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, RuleOwnerTest,
    ::testing::Values(
        RuleRow{"KubeletsFormWithAnotherBit", kNat, "KUBE-MARK-MASQ", false,
                "-j MARK --set-xmark 0x100000/0x100000", "", Owner::kKubelet},
        RuleRow{"SomebodysRuleInKubeletsChain", kNat, "KUBE-MARK-MASQ", false,
                "-s 10.0.0.1/32 -j ACCEPT", "", Owner::kUnknown},
        RuleRow{"IpvsModesLoopbackRule", kNat, "KUBE-POSTROUTING", false,
                "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", "",
                Owner::kKubeProxyIpvs},
        RuleRow{"KubeletsJump", kFilter, "INPUT", true, "-j KUBE-FIREWALL", "KUBE-FIREWALL",
                Owner::kKubelet},
        RuleRow{"SomebodysJumpToTheSameChain", kFilter, "INPUT", true, "-i eth0 -j KUBE-FIREWALL",
                "KUBE-FIREWALL", Owner::kUnknown},
        RuleRow{"SomebodysJumpFromForward", kFilter, "FORWARD", true, "-j KUBE-FIREWALL",
                "KUBE-FIREWALL", Owner::kUnknown},
        RuleRow{"SomebodysUseFromABaseChain", kNat, "PREROUTING", true,
                "-s 10.0.0.1/32 -j KUBE-MARK-MASQ", "KUBE-MARK-MASQ", Owner::kUnknown},
        RuleRow{"KubeProxysJump", kNat, "PREROUTING", true,
                "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
                "KUBE-SERVICES", Owner::kKubeProxy},
        RuleRow{"NodeLocalDns", kFilter, "INPUT", true,
                "-d 169.254.20.10/32 -m comment --comment \"NodeLocal DNS Cache: allow DNS "
                "traffic\" -j ACCEPT",
                "", Owner::kNodeLocalDns},
        RuleRow{"Weave", kFilter, "FORWARD", true,
                "-o weave -m comment --comment \"NOTE: this must go before '-j KUBE-FORWARD'\" -j "
                "WEAVE-NPC",
                "WEAVE-NPC", Owner::kWeave}),
    [](const auto& row) { return row.param.name; });

TEST(ChainGroupTest, IsOneForAllServices) {
  EXPECT_EQ(ChainGroup("KUBE-SVC-GNZBNJ2PO5MGZ6GT"), "KUBE-SVC-*");
  EXPECT_EQ(ChainGroup("KUBE-SERVICES"), "KUBE-SERVICES");
  EXPECT_EQ(ChainGroup("CNI-DN-1"), "CNI-DN-*");
}

// Two tables name kube-proxy's chains: whose rules claim a chain (policy), and how they are called.
TEST(ChainOwnerTest, CallsKubeProxysWhatPolicyTakesForKubeProxys) {
  for (const netlink::Table table : netlink::kTables) {
    for (const char* name :
         {"KUBE-SERVICES", "KUBE-PROXY-CANARY", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL",
          "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-FIREWALL", "KUBE-LOAD-BALANCER",
          "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER",
          "KUBE-IPVS-OUT-FILTER", "KUBE-SVC-X", "KUBE-SEP-X", "KUBE-FW-X", "KUBE-XLB-X",
          "KUBE-EXT-X", "KUBE-SVL-X"}) {
      if (!IsKubeProxyChain({netlink::Family::kIPv4, table, name})) continue;
      const Owner owner = OwnerOfChain({"ip", std::string(netlink::TableName(table))}, name);
      EXPECT_TRUE(owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs)
          << netlink::TableName(table) << " " << name;
    }
  }
  EXPECT_TRUE(IsKubeProxyChain({netlink::Family::kIPv4, netlink::Table::kNat, "KUBE-SVC-X"}));
}

}  // namespace
}  // namespace kipt::agent
