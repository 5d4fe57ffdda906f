// SPDX-License-Identifier: Apache-2.0
//
// After `sync` the kernel holds what kubelet 1.27's own iptables commands would have made, as
// iptables itself prints it: nf_tables against iptables-nft, legacy tables against iptables-legacy.
#include <tuple>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

struct BitsRow {
  const char* name;
  KubeletBits bits;
};

KubeletForm FormOf(bool ownership_cleanup) {
  return ownership_cleanup ? KubeletForm::k1_27GateOn : KubeletForm::k1_27GateOff;
}

class KubeletParityTest
    : public AgentTest,
      public ::testing::WithParamInterface<std::tuple<IptablesMode, IpFamily, bool, BitsRow>> {
 protected:
  IptablesMode mode() const { return std::get<0>(GetParam()); }
  IpFamily family() const { return std::get<1>(GetParam()); }
  bool cleanup() const { return std::get<2>(GetParam()); }
  KubeletBits bits() const { return std::get<3>(GetParam()).bits; }
  AgentSettings settings() const { return {cleanup(), bits(), mode()}; }
  Iptables Of(IpFamily family) const { return {.family = family, .mode = mode()}; }
  Iptables iptables() const { return Of(family()); }

  // What exists; in cleanup mode without canaries, which only kubelet makes.
  SavedRules Current() const {
    SavedRules rules = SavedRules::Of(iptables());
    if (!cleanup()) return rules;
    for (const char* table : kIptablesTables) {
      rules.RemoveChain(table, "KUBE-KUBELET-CANARY");
      rules.RemoveTableIfBare(table);
    }
    return rules;
  }

  // What kubelet makes in an empty namespace, with the decided deviations.
  SavedRules Expected() const {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    Kubelet(FormOf(cleanup()), iptables(), bits());
    SavedRules expected = Current();
    if (!cleanup() && family() == IpFamily::kIpv6) {
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

TEST_P(KubeletParityTest, KubeletAddsNoRuleToOurs) {
  Sync(settings());
  const SavedRules ours = SavedRules::Of(iptables());
  const KubeletRun run = Kubelet(FormOf(cleanup()), iptables(), bits());
  EXPECT_EQ(run.rules_added, 0);
  // In cleanup mode only kubelet makes its canaries.
  EXPECT_EQ(run.chains_created, cleanup() ? 3 : 0);
  EXPECT_EQ(Current(), ours);
}

TEST_P(KubeletParityTest, NothingIsPlannedWhereKubeletDidItAll) {
  for (const IpFamily each : kBothFamilies) {
    const Iptables of_family = Of(each);
    Kubelet(FormOf(cleanup()), of_family, bits());
    if (!cleanup() && each == IpFamily::kIpv6) {
      for (const char* chain : {"INPUT", "OUTPUT"}) {
        EXPECT_EQ(of_family.Run({"-I", chain, "-j", "KUBE-FIREWALL"}).exit_code, 0);
      }
    }
  }
  ExpectNothingPlanned(settings());
}

std::string NameOfRow(const ::testing::TestParamInfo<KubeletParityTest::ParamType>& row) {
  const auto& [mode, family, cleanup, bits] = row.param;
  return TestNameOf(mode) + (family == IpFamily::kIpv4 ? "Ipv4" : "Ipv6") +
         (cleanup ? "GateOn" : "GateOff") + bits.name;
}

INSTANTIATE_TEST_SUITE_P(ModeFamilyGateBits, KubeletParityTest,
                         ::testing::Combine(::testing::ValuesIn(kBothModes),
                                            ::testing::ValuesIn(kBothFamilies), ::testing::Bool(),
                                            ::testing::Values(BitsRow{"DefaultBits", {14, 15}},
                                                              BitsRow{"Bits0And31", {0, 31}},
                                                              BitsRow{"Bits31And5", {31, 5}})),
                         NameOfRow);

struct FormRow {
  const char* name;
  KubeletForm form;
};
constexpr FormRow kForms[] = {
    {"Kubelet1_17", KubeletForm::k1_17},
    {"Kubelet1_19", KubeletForm::k1_19},
    {"Kubelet1_24", KubeletForm::k1_24},
    {"Kubelet1_27GateOff", KubeletForm::k1_27GateOff},
    {"Kubelet1_27GateOn", KubeletForm::k1_27GateOn},
};

class KubeletTakeoverTest
    : public AgentTest,
      public ::testing::WithParamInterface<std::tuple<IptablesMode, FormRow>> {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    for (const IpFamily family : kBothFamilies) Kubelet(Form(), Of(family));
  }

  static IptablesMode Mode() { return std::get<0>(GetParam()); }
  static KubeletForm Form() { return std::get<1>(GetParam()).form; }
  static AgentSettings Settings(bool ownership_cleanup) {
    return {.ownership_cleanup = ownership_cleanup, .iptables = Mode()};
  }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = Mode()}; }

  static SavedRules FreshSync(const AgentSettings& settings, IpFamily family) {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    Sync(settings);
    return SavedRules::Of(Of(family));
  }
};

TEST_P(KubeletTakeoverTest, LegacySyncEndsWithWhatAFreshNodeHas) {
  const AgentSettings legacy = Settings(/*ownership_cleanup=*/false);
  Sync(legacy);
  for (const IpFamily family : kBothFamilies) {
    const SavedRules saved = SavedRules::Of(Of(family));
    EXPECT_THAT(saved.DoubledRules(), IsEmpty());
    EXPECT_EQ(saved, FreshSync(legacy, family));
  }
  ExpectNothingPlanned(legacy);
}

TEST_P(KubeletTakeoverTest, CleanupSyncDoublesNothingAndRemovesNothing) {
  std::vector<SavedRules> before;
  for (const IpFamily family : kBothFamilies) before.push_back(SavedRules::Of(Of(family)));
  const AgentSettings cleanup = Settings(/*ownership_cleanup=*/true);
  Sync(cleanup);
  for (const IpFamily family : kBothFamilies) {
    const SavedRules after = SavedRules::Of(Of(family));
    EXPECT_THAT(after.DoubledRules(), IsEmpty());
    EXPECT_THAT(before[family == IpFamily::kIpv4 ? 0 : 1].LinesMissingIn(after), IsEmpty());
    // A cleanup node's own state is all there, too.
    EXPECT_THAT(FreshSync(cleanup, family).LinesMissingIn(after), IsEmpty());
  }
  ExpectNothingPlanned(cleanup);
}

INSTANTIATE_TEST_SUITE_P(ModeForms, KubeletTakeoverTest,
                         ::testing::Combine(::testing::ValuesIn(kBothModes),
                                            ::testing::ValuesIn(kForms)),
                         [](const auto& row) {
                           return TestNameOf(std::get<0>(row.param)) + std::get<1>(row.param).name;
                         });

}  // namespace
}  // namespace kipt::testing
