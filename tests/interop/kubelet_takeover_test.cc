// SPDX-License-Identifier: Apache-2.0
//
// A node on which a kubelet of some generation has already been at work.
#include <tuple>
#include <vector>

#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

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
    // A cleanup node's own state is all there beside it.
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

class DriftTest : public AgentTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings(bool ownership_cleanup) {
    return {.ownership_cleanup = ownership_cleanup, .iptables = GetParam()};
  }
  const Iptables ipv4_{.family = IpFamily::kIpv4, .mode = GetParam()};
};

TEST_P(DriftTest, TheMasqueradeRuleOf117IsReplacedByItsThreeSuccessors) {
  Kubelet(KubeletForm::k1_17, ipv4_);
  EXPECT_THAT(SavedRules::Of(ipv4_).Rules("nat", "KUBE-POSTROUTING"), SizeIs(1));
  Sync(Settings(/*ownership_cleanup=*/false));
  EXPECT_THAT(SavedRules::Of(ipv4_).Rules("nat", "KUBE-POSTROUTING"),
              ElementsAre("-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
                          "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
                          "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic "
                          "requiring SNAT\" -j MASQUERADE --random-fully"));
}

TEST_P(DriftTest, FlippingTheGateForthAndBackLosesNothing) {
  Sync(Settings(/*ownership_cleanup=*/false));
  const SavedRules legacy = SavedRules::Of(ipv4_);
  Sync(Settings(/*ownership_cleanup=*/true));
  EXPECT_EQ(SavedRules::Of(ipv4_), legacy) << "what the other mode left stays";
  Sync(Settings(/*ownership_cleanup=*/false));
  EXPECT_EQ(SavedRules::Of(ipv4_), legacy);
}

INSTANTIATE_TEST_SUITE_P(Modes, DriftTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
