// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/skew/actors/third_parties.h"
#include "tests/skew/selftest/actor_fixture.h"

namespace kipt::skew {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";

class KubeletActorTest : public ActorTest {
 protected:
  static std::unique_ptr<NodeAgent> New(int minor, std::optional<bool> gate = {}) {
    return NewKubelet({.version = KubeletOf(minor, gate), .iptables = Choice()});
  }
};

TEST_P(KubeletActorTest, WritesBothFamiliesAndItsCanaries) {
  const std::unique_ptr<NodeAgent> kubelet = New(24);
  EXPECT_EQ(kubelet->name(), "kubelet 1.24");
  EXPECT_TRUE(Went(kubelet->Start()));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    const testing::SavedRules saved = Saved(iptables);
    EXPECT_TRUE(saved.HasChain("mangle", "KUBE-IPTABLES-HINT"));
    for (const char* table : {"mangle", "nat", "filter"}) {
      EXPECT_TRUE(saved.HasChain(table, kCanary)) << table;
    }
    EXPECT_THAT(saved.Rules("nat", "KUBE-MARK-DROP"), Contains(HasSubstr("0x8000/0x8000")));
  }
}

TEST_P(KubeletActorTest, UpTo1_19WritesNoIpv6) {
  EXPECT_TRUE(Went(New(19)->Start()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
  EXPECT_THAT(Saved(V6()).Chains(), IsEmpty());
  EXPECT_TRUE(Went(New(20)->Start()));
  EXPECT_TRUE(Saved(V6()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(KubeletActorTest, ItsGateDecidesWhatItWrites) {
  EXPECT_TRUE(Went(New(27)->Start()));
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-MASQ"));
  EXPECT_TRUE(Went(New(27, false)->Start()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-MASQ"));
}

TEST_P(KubeletActorTest, ItsMonitorDoesNotSeeThatNatAndFilterAreEmpty) {
  const std::unique_ptr<NodeAgent> kubelet = New(24);
  EXPECT_TRUE(Went(kubelet->Start()));
  for (const char* table : {"nat", "filter"}) EXPECT_TRUE(Went(FlushTable(Choice(), table)));
  const Act act = kubelet->Tick();
  EXPECT_TRUE(Went(act));
  EXPECT_THAT(act.done, IsEmpty());
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(KubeletActorTest, ItsMonitorStartsOverWhenMangleIsEmptyAndThenLooksOn) {
  const std::unique_ptr<NodeAgent> kubelet = New(24);
  EXPECT_TRUE(Went(kubelet->Start()));
  const testing::SavedRules before = Saved(V4());
  const testing::SavedRules before_v6 = Saved(V6());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Went(FlushEverything(Choice())));
    EXPECT_FALSE(Saved(V4()).HasChain("mangle", kCanary));
    EXPECT_TRUE(Went(kubelet->Tick()));
    EXPECT_EQ(Saved(V4()), before);
    EXPECT_EQ(Saved(V6()), before_v6);
  }
  EXPECT_THAT(kubelet->Tick().done, IsEmpty());
}

TEST_P(KubeletActorTest, ANewerOneLeavesWhatTheOlderOneMade) {
  const std::unique_ptr<NodeAgent> old = New(26);
  EXPECT_TRUE(Went(old->Start()));
  EXPECT_TRUE(Went(old->Stop()));
  const testing::SavedRules before = Saved(V4());
  EXPECT_TRUE(Went(New(28)->Start()));
  EXPECT_EQ(Saved(V4()), before);
}

TEST_P(KubeletActorTest, HasNoGateForLabels) { EXPECT_FALSE(New(28)->SetConnLabels(true).ok); }

TEST_P(KubeletActorTest, From1_21ItGivesUpOnAFamilyWhoseFirstSyncFailed) {
  const IptablesChoice missing = {.mode = GetParam(), .chroot_dir = "/nonexistent"};
  const std::unique_ptr<NodeAgent> newer =
      NewKubelet({.version = KubeletOf(21), .iptables = missing});
  const Act started = newer->Start();
  EXPECT_FALSE(started.ok);
  EXPECT_THAT(started.error, HasSubstr("ipv4: "));
  EXPECT_THAT(started.error, HasSubstr("ipv6: "));
  EXPECT_THAT(started.error, Not(HasSubstr("canary")));
  EXPECT_TRUE(Went(newer->Tick()));
  const std::unique_ptr<NodeAgent> older =
      NewKubelet({.version = KubeletOf(19), .iptables = missing});
  EXPECT_THAT(older->Start().error, HasSubstr("canary"));
  EXPECT_FALSE(older->Tick().ok);
}

INSTANTIATE_TEST_SUITE_P(Modes, KubeletActorTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
