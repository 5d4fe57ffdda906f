// SPDX-License-Identifier: Apache-2.0
//
// After `sync` the kernel holds what kubelet 1.27's own iptables commands would have made, as
// iptables itself tells it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

using ::testing::Combine;
using ::testing::IsEmpty;
using ::testing::TestParamInfo;
using ::testing::Values;
using ::testing::ValuesIn;

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";

struct BitsRow {
  const char* name;
  KubeletBits bits;
};

KubeletForm FormOf(bool ownership_cleanup) {
  return ownership_cleanup ? KubeletForm::k1_27GateOn : KubeletForm::k1_27GateOff;
}

class KubeletParityTest
    : public AgentTest,
      public ::testing::WithParamInterface<std::tuple<IpFamily, bool, BitsRow>> {
 protected:
  IpFamily family() const { return std::get<0>(GetParam()); }
  bool cleanup() const { return std::get<1>(GetParam()); }
  KubeletBits bits() const { return std::get<2>(GetParam()).bits; }
  AgentSettings settings() const { return {cleanup(), bits()}; }
  Iptables iptables() const { return {family()}; }
  std::vector<KubeletStep> Steps() const {
    return KubeletSequence(FormOf(cleanup()), family(), bits());
  }

  // What kubelet makes in an empty namespace.
  SavedRules KubeletMakes() const {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    Kubelet(FormOf(cleanup()), iptables(), bits());
    return SavedRules::Of(iptables());
  }

  // The same with the three decided deviations, each of which has its test below.
  SavedRules Expected() const {
    SavedRules expected = KubeletMakes();
    if (cleanup()) {
      for (const char* table : kIptablesTables) {
        expected.RemoveChain(table, kCanary);
        expected.RemoveTableIfBare(table);
      }
    } else if (family() == IpFamily::kIpv6) {
      expected.AddRule("filter", "-A INPUT -j KUBE-FIREWALL");
      expected.AddRule("filter", "-A OUTPUT -j KUBE-FIREWALL");
    }
    return expected;
  }
};

TEST_P(KubeletParityTest, SyncMakesWhatKubeletMakes) {
  Sync(settings());
  EXPECT_EQ(SavedRules::Of(iptables()), Expected());
}

TEST_P(KubeletParityTest, IptablesFindsEachOfKubeletsRules) {
  Sync(settings());
  for (const KubeletStep& step : Steps()) {
    if (step.rule.empty()) continue;
    const ProgramResult result = iptables().Run(CheckArguments(step));
    EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(step.rule) << result;
  }
}

TEST_P(KubeletParityTest, KubeletAddsNoRuleToOurs) {
  Sync(settings());
  const SavedRules ours = SavedRules::Of(iptables());
  const KubeletRun run = Kubelet(FormOf(cleanup()), iptables(), bits());
  EXPECT_EQ(run.rules_added, 0);
  // In cleanup mode only kubelet makes its canaries.
  EXPECT_EQ(run.chains_created, cleanup() ? 3 : 0);
  SavedRules together = SavedRules::Of(iptables());
  if (cleanup()) {
    for (const char* table : kIptablesTables) {
      together.RemoveChain(table, kCanary);
      together.RemoveTableIfBare(table);
    }
  }
  EXPECT_EQ(together, ours);
}

TEST_P(KubeletParityTest, NothingIsPlannedWhereKubeletDidItAll) {
  for (const IpFamily each : kBothFamilies) {
    const Iptables of_family{each};
    Kubelet(FormOf(cleanup()), of_family, bits());
    if (!cleanup() && each == IpFamily::kIpv6) {
      for (const char* chain : {"INPUT", "OUTPUT"}) {
        EXPECT_EQ(of_family.Run({"-I", chain, "-j", "KUBE-FIREWALL"}).exit_code, 0);
      }
    }
  }
  ExpectNothingPlanned(settings());
}

INSTANTIATE_TEST_SUITE_P(
    FamilyGateBits, KubeletParityTest,
    Combine(ValuesIn(kBothFamilies), Values(false, true),
            Values(BitsRow{"DefaultBits", {14, 15}}, BitsRow{"Bits0And31", {0, 31}},
                   BitsRow{"Bits31And5", {31, 5}})),
    [](const TestParamInfo<KubeletParityTest::ParamType>& row) {
      return std::string(std::get<0>(row.param) == IpFamily::kIpv4 ? "Ipv4" : "Ipv6") +
             (std::get<1>(row.param) ? "GateOn" : "GateOff") + std::get<2>(row.param).name;
    });

// ---- the decided deviations ----

class KubeletDeviationTest : public AgentTest {};

TEST_F(KubeletDeviationTest, CleanupModeMakesNoCanaryAsTheKepHasIt) {
  const Netns kubelets = NewNetns();
  Sync({.ownership_cleanup = true});
  for (const IpFamily family : kBothFamilies) {
    const SavedRules ours = SavedRules::Of({family});
    const InNetns in(kubelets);
    Kubelet(KubeletForm::k1_27GateOn, {family});
    for (const char* table : kIptablesTables) {
      EXPECT_FALSE(ours.HasChain(table, kCanary)) << table;
      EXPECT_TRUE(SavedRules::Of({family}).HasChain(table, kCanary)) << table;
    }
  }
}

TEST_F(KubeletDeviationTest, LegacyModeMakesTheCanaryInEachTable) {
  Sync({.ownership_cleanup = false});
  for (const IpFamily family : kBothFamilies) {
    for (const char* table : kIptablesTables) {
      EXPECT_TRUE(SavedRules::Of({family}).HasChain(table, kCanary)) << table;
    }
  }
}

TEST_F(KubeletDeviationTest, LegacyModeJumpsToKubeFirewallInIpv6Too) {
  const Iptables ipv6{IpFamily::kIpv6};
  const Netns kubelets = NewNetns();
  Sync({.ownership_cleanup = false});
  const SavedRules ours = SavedRules::Of(ipv6);
  const InNetns in(kubelets);
  Kubelet(KubeletForm::k1_27GateOff, ipv6);
  const SavedRules theirs = SavedRules::Of(ipv6);
  for (const std::string chain : {"INPUT", "OUTPUT"}) {
    EXPECT_THAT(ours.Rules("filter", chain),
                ::testing::ElementsAre("-A " + chain + " -j KUBE-FIREWALL"));
    EXPECT_THAT(theirs.Rules("filter", chain), IsEmpty());
  }
}

TEST_F(KubeletDeviationTest, CleanupModeMakesNoNatTable) {
  Sync({.ownership_cleanup = true});
  const std::string tables = Output({"/usr/sbin/nft", "list", "tables"});
  EXPECT_EQ(tables, "table ip mangle\ntable ip filter\ntable ip6 mangle\n") << tables;
  // kubelet's canary makes one.
  Kubelet(KubeletForm::k1_27GateOn, {IpFamily::kIpv4});
  EXPECT_TRUE(SavedRules::Of({IpFamily::kIpv4}).HasTable("nat"));
}

}  // namespace
}  // namespace kipt::testing
