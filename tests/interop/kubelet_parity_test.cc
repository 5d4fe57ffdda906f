// SPDX-License-Identifier: Apache-2.0
//
// After `sync` the kernel holds what kubelet 1.27's own iptables commands would have made, as
// iptables itself tells it: with nf_tables beside iptables-nft, with the legacy tables beside
// iptables-legacy.
#include <string>
#include <tuple>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

using ::testing::Combine;
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
      public ::testing::WithParamInterface<std::tuple<IptablesMode, IpFamily, bool, BitsRow>> {
 protected:
  IptablesMode mode() const { return std::get<0>(GetParam()); }
  IpFamily family() const { return std::get<1>(GetParam()); }
  bool cleanup() const { return std::get<2>(GetParam()); }
  KubeletBits bits() const { return std::get<3>(GetParam()).bits; }
  AgentSettings settings() const { return {cleanup(), bits(), mode()}; }
  Iptables Of(IpFamily family) const { return {.family = family, .mode = mode()}; }
  Iptables iptables() const { return Of(family()); }

  // What kubelet makes in an empty namespace.
  SavedRules KubeletMakes() const {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    Kubelet(FormOf(cleanup()), iptables(), bits());
    return SavedRules::Of(iptables());
  }

  // The same with the three decided deviations.
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

std::string NameOfRow(const TestParamInfo<KubeletParityTest::ParamType>& row) {
  const auto& [mode, family, cleanup, bits] = row.param;
  return TestNameOf(mode) + (family == IpFamily::kIpv4 ? "Ipv4" : "Ipv6") +
         (cleanup ? "GateOn" : "GateOff") + bits.name;
}

INSTANTIATE_TEST_SUITE_P(ModeFamilyGateBits, KubeletParityTest,
                         Combine(ValuesIn(kBothModes), ValuesIn(kBothFamilies), Values(false, true),
                                 Values(BitsRow{"DefaultBits", {14, 15}},
                                        BitsRow{"Bits0And31", {0, 31}},
                                        BitsRow{"Bits31And5", {31, 5}})),
                         NameOfRow);

}  // namespace
}  // namespace kipt::testing
