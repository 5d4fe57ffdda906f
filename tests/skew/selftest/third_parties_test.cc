// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "tests/skew/actors/actors.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

class ThirdPartiesTest : public ActorTest {
 protected:
  static std::unique_ptr<NodeAgent> StartKubelet(int minor) {
    std::unique_ptr<NodeAgent> kubelet =
        NewKubelet({.version = KubeletOf(minor), .iptables = Choice()});
    EXPECT_TRUE(Went(kubelet->Start()));
    return kubelet;
  }
  static Act Portmap() {
    return AddPortmap(Choice(), {.host_port = 18001, .pod_address = "10.88.1.2", .pod_port = 8053},
                      testing::Netns::Current()->Path());
  }
};

TEST_P(ThirdPartiesTest, PortmapWithAnExternalChainNeedsKubeMarkMasq) {
  const Act refused = Portmap();
  EXPECT_FALSE(refused.ok);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("unable to setup DNAT"), HasSubstr("KUBE-MARK-MASQ")));
  StartKubelet(26);
  EXPECT_TRUE(Went(Portmap()));
  const testing::SavedRules saved = Saved(V4());
  int users = 0;
  for (const auto& [table, chain] : saved.Chains()) {
    if (chain.rfind("CNI-DN-", 0) != 0) continue;
    ++users;
    const std::vector<std::string> rules = saved.Rules(table, chain);
    EXPECT_THAT(rules, Contains(AllOf(HasSubstr("-p udp"), HasSubstr("--dport 18001"),
                                      HasSubstr("-j KUBE-MARK-MASQ"))));
    EXPECT_THAT(rules, Contains(AllOf(HasSubstr("-p tcp"), HasSubstr("-j DNAT"),
                                      HasSubstr("10.88.1.2:8053"))));
  }
  EXPECT_EQ(users, 1);
  EXPECT_FALSE(Saved(V6()).HasChain("nat", "CNI-HOSTPORT-DNAT"));
}

TEST_P(ThirdPartiesTest, AChainThatLeadsToKubeMarkDropNeedsItInEachFamily) {
  const Act refused = AddUserOfMarkDrop(Choice(), 7777);
  EXPECT_FALSE(refused.ok);
  EXPECT_THAT(refused.error,
              AllOf(HasSubstr("ipv4: "), HasSubstr("ipv6: "), HasSubstr("KUBE-MARK-DROP")));
  EXPECT_THAT(RulesIn(V4(), "nat", "PREROUTING"), IsEmpty());
  StartKubelet(19);
  EXPECT_THAT(AddUserOfMarkDrop(Choice(), 7777).error,
              AllOf(Not(HasSubstr("ipv4: ")), HasSubstr("ipv6: ")));
  StartKubelet(24);
  EXPECT_TRUE(Went(AddUserOfMarkDrop(Choice(), 7777)));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    EXPECT_THAT(RulesIn(iptables, "nat", "USER-DROPS"), SizeIs(2));
    EXPECT_THAT(RulesIn(iptables, "nat", "PREROUTING"),
                ElementsAre(HasSubstr("--dst-type LOCAL -j USER-DROPS")));
  }
}

TEST_P(ThirdPartiesTest, AChainThatLeadsToKubeMarkMasqNeedsIt) {
  EXPECT_FALSE(AddUserOfMarkMasq(Choice(), 7778).ok);
  StartKubelet(24);
  EXPECT_TRUE(Went(AddUserOfMarkMasq(Choice(), 7778)));
  EXPECT_THAT(RulesIn(V6(), "nat", "USER-MASQ"),
              Contains(AllOf(HasSubstr("-p udp"), HasSubstr("--dport 7778"),
                             HasSubstr("-j KUBE-MARK-MASQ"))));
}

TEST_P(ThirdPartiesTest, AUserOfLabelsNeedsTheChainsAndLeavesNothingBehind) {
  const LabelledPorts ports = {7780, 7781, 7782, 7783};
  EXPECT_FALSE(AddUserOfLabels(Choice(), ports).ok);
  EXPECT_FALSE(RemoveUserOfLabels(Choice()).ok);
  AgentDaemonSettings settings = {
      .program = AgentProgram(), .version = KubeletOf(27), .mode = GetParam()};
  settings.conn_labels = true;
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(settings);
  EXPECT_TRUE(Went(agent->Start()));
  EXPECT_TRUE(Went(AddUserOfLabels(Choice(), ports)));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    EXPECT_THAT(
        RulesIn(iptables, "nat", "USER-LABELS"),
        AllOf(SizeIs(4),
              Contains(AllOf(HasSubstr("-p udp"), HasSubstr("--dport 7780:7781"),
                             HasSubstr("-j KUBELET-MARK-DROP"))),
              Contains(AllOf(HasSubstr("--dport 7782:7783"), HasSubstr("-j KUBELET-MARK-MASQ")))));
    for (const char* base : {"PREROUTING", "OUTPUT"}) {
      EXPECT_THAT(RulesIn(iptables, "nat", base), Contains(HasSubstr("-j USER-LABELS"))) << base;
    }
  }
  EXPECT_TRUE(Went(RemoveUserOfLabels(Choice())));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    EXPECT_FALSE(Saved(iptables).HasChain("nat", "USER-LABELS"));
    EXPECT_THAT(RulesIn(iptables, "nat", "OUTPUT"), Not(Contains(HasSubstr("USER-LABELS"))));
  }
}

TEST_P(ThirdPartiesTest, AFlushOfEverythingLeavesNoRuleAndNoChainEvenWhereChainsUseEachOther) {
  StartKubelet(24);
  EXPECT_TRUE(Went(AddUserOfMarkDrop(Choice(), 7777)));
  const Act flushed = FlushEverything(Choice());
  EXPECT_TRUE(Went(flushed));
  EXPECT_THAT(flushed.done, Not(Contains(HasSubstr("refused"))));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    const testing::SavedRules saved = Saved(iptables);
    for (const auto& [table, chain] : saved.Chains()) {
      EXPECT_THAT(chain, Not(HasSubstr("KUBE"))) << table;
      EXPECT_THAT(saved.Rules(table, chain), IsEmpty()) << table;
    }
  }
}

TEST_P(ThirdPartiesTest, WhatThisIptablesSavesAndRestoresIsWhatItWas) {
  StartKubelet(24);
  EXPECT_TRUE(Went(AddUserOfMarkDrop(Choice(), 7777)));
  const testing::SavedRules before = Saved(V4());
  const testing::SavedRules before_v6 = Saved(V6());
  EXPECT_TRUE(Went(SaveAndRestore(Choice())));
  EXPECT_EQ(Saved(V4()), before);
  EXPECT_EQ(Saved(V6()), before_v6);
  EXPECT_THAT(before.LinesMissingIn(Saved(V4())), IsEmpty());
}

TEST_P(ThirdPartiesTest, AnotherGenerationInAChrootReadsAndWritesTheSameKernel) {
  for (const char* release : {"bullseye", "trixie"}) {
    IptablesChoice other = Choice();
    other.chroot_dir = testing::ChrootDir(release);
    EXPECT_TRUE(Went(NewKubelet({.version = KubeletOf(24), .iptables = other})->Start()));
    const testing::SavedRules before = Saved(V4());
    EXPECT_TRUE(before.HasChain("nat", "KUBE-MARK-DROP"));
    // Its own rules come out of the round trip as they went in.
    EXPECT_TRUE(Went(SaveAndRestore(other)));
    EXPECT_EQ(Saved(V4()), before) << release;
    EXPECT_THAT(SaveAndRestore(other).done, Contains(StartsWith("ipv6: ")));
    EXPECT_TRUE(Went(FlushEverything(other)));
    EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ThirdPartiesTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
