// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/config/config.h"
#include "agent/policy/ownership.h"
#include "agent/policy/retirement.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent::policy_test {
namespace {

TEST(PolicyTest, WithoutChainsTheModeIsOffWhateverTheGate) {
  for (const bool gate : {false, true}) {
    const featuregates::FeatureGates gates =
        ResolveFeatureGates({1, 27}, {{.values = {{"IPTablesOwnershipCleanup", gate}}}}).value();
    EXPECT_EQ(ModeFor(gates, /*make_iptables_util_chains=*/false), Mode::kOff);
    EXPECT_EQ(ModeFor(gates, true), gate ? Mode::kCleanup : Mode::kLegacy);
  }
}

// The numbers are the kernel's: linux/netfilter.h, nf_conntrack_common.h, netfilter_ipv4.h.
TEST(PolicyTest, TheNativeTableDropsMartiansOfNoConnectionAndOfNewOnes) {
  const netlink::NativeTable table = NativeMartians();
  ASSERT_EQ(table.chains.size(), 2);
  EXPECT_EQ(table.family, Family::kIPv4);
  EXPECT_EQ(table.name, "kube-iptables-agent");
  EXPECT_EQ(table.chains[0].hook, 1);  // NF_INET_LOCAL_IN
  EXPECT_EQ(table.chains[1].hook, 3);  // NF_INET_LOCAL_OUT
  for (const netlink::NativeChain& chain : table.chains) {
    EXPECT_EQ(chain.priority, -1) << chain.name;  // just before iptables' filter
    ASSERT_EQ(chain.rules.size(), 2) << chain.name;
    const netlink::NativeDrop& without_connection = chain.rules[0];
    EXPECT_EQ(without_connection.state_any, 1 | 64);  // invalid, untracked
    EXPECT_EQ(without_connection.state_none, 0);
    EXPECT_EQ(without_connection.status_none, 0);
    const netlink::NativeDrop& with_connection = chain.rules[1];
    EXPECT_EQ(with_connection.state_any, 0);
    EXPECT_EQ(with_connection.state_none, 2 | 4);  // established, related
    EXPECT_EQ(with_connection.status_none, 32);    // IPS_DST_NAT
    for (const netlink::NativeDrop& rule : chain.rules) {
      EXPECT_EQ(rule.source, DropMartians(0).source);
      EXPECT_EQ(rule.destination, DropMartians(0).destination);
      EXPECT_EQ(rule.comment, "block incoming localnet connections");
    }
  }
}

TEST(PolicyTest, EachChainOfKubeProxysAloneClaimsItsFamily) {
  const netlink::ChainId chains[] = {Nat("KUBE-SERVICES"), Filter("KUBE-SERVICES"),
                                     Mangle("KUBE-PROXY-CANARY"), Nat("KUBE-PROXY-CANARY"),
                                     Filter("KUBE-PROXY-CANARY")};
  for (const netlink::ChainId& chain : chains) {
    netlink::Snapshot snapshot;
    snapshot.chains[chain] = {};
    EXPECT_TRUE(IsClaimedByKubeProxy(snapshot, Family::kIPv4)) << netlink::ToString(chain);
    EXPECT_FALSE(IsClaimedByKubeProxy(snapshot, Family::kIPv6)) << netlink::ToString(chain);
  }
  EXPECT_FALSE(IsClaimedByKubeProxy({}, Family::kIPv4));
}

std::vector<std::string> Lines(absl::Span<const netlink::ChainQuery> queries) {
  std::vector<std::string> lines;
  for (const netlink::ChainQuery& query : queries) {
    lines.push_back(absl::StrCat(netlink::ToString(query.chain), query.with_rules ? " rules" : "",
                                 query.follow ? " follow" : ""));
  }
  return lines;
}

TEST(PolicyTest, ReadsTheseChainsAndFollowsWhatLeadsToKubelets) {
  EXPECT_THAT(
      Lines(ChainsToRead({Family::kIPv4})),
      ElementsAre("ip mangle KUBE-IPTABLES-HINT rules", "ip mangle KUBE-KUBELET-CANARY rules",
                  "ip mangle KUBE-PROXY-CANARY", "ip nat KUBE-KUBELET-CANARY rules",
                  "ip nat KUBE-MARK-DROP rules", "ip nat KUBE-MARK-MASQ rules",
                  "ip nat KUBE-POSTROUTING rules", "ip nat KUBE-PROXY-CANARY",
                  "ip nat KUBE-SERVICES", "ip nat KUBELET-MARK-DROP rules",
                  "ip nat KUBELET-MARK-MASQ rules", "ip nat KUBELET-POSTROUTING rules",
                  "ip nat OUTPUT rules", "ip nat POSTROUTING rules follow",
                  "ip nat PREROUTING rules", "ip filter FORWARD rules follow",
                  "ip filter INPUT rules follow", "ip filter KUBE-FIREWALL rules follow",
                  "ip filter KUBE-KUBELET-CANARY rules", "ip filter KUBE-PROXY-CANARY",
                  "ip filter KUBE-PROXY-FIREWALL", "ip filter KUBE-SERVICES",
                  "ip filter KUBELET-FIREWALL rules", "ip filter OUTPUT rules follow"));
}

TEST(PolicyTest, ForADiffFollowsItsJumpsAndTheWayToTheMartianRule) {
  const auto followed = [](const Ruleset& desired) {
    std::vector<std::string> chains;
    for (const netlink::ChainQuery& query : ChainsToRead(desired)) {
      if (query.follow) chains.push_back(netlink::ToString(query.chain));
    }
    return chains;
  };
  const Family six[] = {Family::kIPv6};
  EXPECT_THAT(followed(DesiredRuleset(Wanting(Mode::kOff, six))),
              ElementsAre("ip filter INPUT", "ip filter KUBE-FIREWALL"));
  EXPECT_THAT(followed(DesiredRuleset(Wanting(Mode::kCleanup, six))),
              ElementsAre("ip filter INPUT", "ip filter KUBE-FIREWALL"));
  EXPECT_THAT(followed(DesiredRuleset(Wanting(Mode::kLegacy, netlink::kFamilies))),
              ElementsAre("ip nat POSTROUTING", "ip filter INPUT", "ip filter KUBE-FIREWALL",
                          "ip filter OUTPUT", "ip6 nat POSTROUTING", "ip6 filter INPUT",
                          "ip6 filter OUTPUT"));
}

TEST(PolicyTest, ForADiffAsksForNoRulesOfChainsThatMustBeEmpty) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    for (const netlink::ChainQuery& query :
         ChainsToRead(DesiredRuleset(Wanting(mode, netlink::kFamilies, {})))) {
      const bool must_be_empty = query.chain.name == kHintChain ||
                                 (query.chain.name == kCanaryChain && mode == Mode::kLegacy);
      EXPECT_EQ(query.with_rules, !must_be_empty && !IsKubeProxyChain(query.chain))
          << ModeName(mode) << " " << netlink::ToString(query.chain);
    }
  }
}

}  // namespace
}  // namespace kipt::agent::policy_test
