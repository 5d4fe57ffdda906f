// SPDX-License-Identifier: Apache-2.0
//
// The yardstick itself: each kubelet form does what such a kubelet did, with each iptables.
#include <string>
#include <vector>

#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

struct FormRow {
  const char* name;
  KubeletForm form;
  int chains[2];  // IPv4, IPv6
  int rules[2];
};
// Counted in the sources of the releases; canaries included.
constexpr FormRow kForms[] = {
    {"Kubelet1_17", KubeletForm::k1_17, {7, 7}, {7, 7}},
    {"Kubelet1_19", KubeletForm::k1_19, {7, 7}, {10, 9}},
    {"Kubelet1_24", KubeletForm::k1_24, {8, 8}, {10, 9}},
    {"Kubelet1_27GateOff", KubeletForm::k1_27GateOff, {8, 8}, {10, 7}},
    {"Kubelet1_27GateOn", KubeletForm::k1_27GateOn, {5, 4}, {3, 0}},
};

class KubeletSequenceTest : public AgentTest, public ::testing::WithParamInterface<FormRow> {};

TEST_P(KubeletSequenceTest, WritesOnceAndFindsItsOwnRulesAfterwards) {
  struct Installation {
    std::string release;
    IptablesMode mode = IptablesMode::kNft;
  };
  const Installation installations[] = {
      {""}, {"bullseye"}, {"trixie"}, {"", IptablesMode::kLegacy}};
  for (const auto& [release, mode] : installations) {
    SCOPED_TRACE(release + NameOf(mode));
    const Netns netns = NewNetns();
    const InNetns in(netns);
    for (const IpFamily family : kBothFamilies) {
      const Iptables iptables{family, release.empty() ? "" : ChrootDir(release), mode};
      const size_t row = family == IpFamily::kIpv4 ? 0 : 1;
      const KubeletRun first = Kubelet(GetParam().form, iptables);
      EXPECT_EQ(first.chains_created, GetParam().chains[row]);
      EXPECT_EQ(first.rules_added, GetParam().rules[row]);
      const KubeletRun second = Kubelet(GetParam().form, iptables);
      EXPECT_EQ(second.chains_created, 0);
      EXPECT_EQ(second.rules_added, 0);
      EXPECT_THAT(SavedRules::Of(iptables).DoubledRules(), IsEmpty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, KubeletSequenceTest, ::testing::ValuesIn(kForms),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kipt::testing
