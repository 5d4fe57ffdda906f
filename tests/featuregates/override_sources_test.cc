// SPDX-License-Identifier: Apache-2.0
//
// Several components and several sources of overrides, each with its own reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "featuregates/feature_gates.h"
#include "featuregates/known_features.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOk;
using ::kipt::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Milestone kKubeletAlphaLife[] = {{{1, 27}, Stage::kAlpha, false}};
constexpr Milestone kKubeletLockedLife[] = {{{1, 27}, Stage::kGA, true, true}};
constexpr Milestone kOwnAlphaLife[] = {{{0, 1}, Stage::kAlpha, false}};
constexpr Milestone kOwnBetaLife[] = {{{0, 1}, Stage::kBeta, true}};

constexpr Feature kTheirs{.name = "Theirs", .milestones = kKubeletAlphaLife};
constexpr Feature kTheirsLocked{.name = "TheirsLocked", .milestones = kKubeletLockedLife};
constexpr Feature kOurs{.name = "Ours", .milestones = kOwnAlphaLife};
constexpr Feature kOursBeta{.name = "OursBeta", .milestones = kOwnBetaLife};

constexpr const Feature* kKubelets[] = {&kTheirs, &kTheirsLocked};
constexpr const Feature* kOwns[] = {&kOurs, &kOursBeta};

absl::StatusOr<FeatureGates> Resolve(const std::vector<Overrides>& overrides,
                                     Version emulated = {1, 27}) {
  return FeatureGates::Resolve({Component{kKubeletComponentName, emulated, kKubelets},
                                Component{kAgentComponentName, {0, 1}, kOwns}},
                               overrides);
}

Overrides Flag(GateValues values) { return {.values = std::move(values)}; }

TEST(OverrideSourcesTest, TheLaterSourceWinsGateByGate) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({Flag({{"Theirs", true}, {"OursBeta", false}}), Flag({{"Ours", true}}),
               Flag({{"Theirs", false}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_FALSE(gates->Enabled(kTheirs));
  EXPECT_TRUE(gates->Enabled(kOurs));
  EXPECT_FALSE(gates->Enabled(kOursBeta));
}

TEST(OverrideSourcesTest, AFlagTakesBackWhatTheFileMayNotSay) {
  const auto file = FromKubeletConfiguration({{"TheirsLocked", false}});
  EXPECT_THAT(Resolve({file}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "cannot set feature gate TheirsLocked to false, feature is locked to true"));
  EXPECT_THAT(Resolve({file, Flag({{"TheirsLocked", true}})}), IsOk());
}

TEST(OverrideSourcesTest, ALaterAllAlphaReplacesTheEarlierOne) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({Flag({{"AllAlpha", true}}), Flag({{"AllAlpha", false}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_FALSE(gates->Enabled(kTheirs));
}

TEST(OverrideSourcesTest, AGatesOwnNameInTheFileWinsOverAllAlphaInTheFlag) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({FromKubeletConfiguration({{"Theirs", false}}), Flag({{"AllAlpha", true}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_FALSE(gates->Enabled(kTheirs));
  EXPECT_TRUE(gates->Enabled(kOurs));
}

TEST(OverrideSourcesTest, UnknownGatesOfAKubeletConfigurationAreHandedBack) {
  const absl::StatusOr<FeatureGates> gates = Resolve(
      {FromKubeletConfiguration({{"NodeSwap", true}, {"CPUManager", false}, {"Theirs", true}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_TRUE(gates->Enabled(kTheirs));
  EXPECT_THAT(gates->ignored(), ElementsAre("CPUManager", "NodeSwap"));
}

TEST(OverrideSourcesTest, AnUnknownGateOfAFlagIsAnErrorThoughTheFileNamesItToo) {
  const Overrides file = FromKubeletConfiguration({{"NodeSwap", true}});
  EXPECT_THAT(Resolve({file, Flag({{"NodeSwap", true}})}),
              StatusIs(absl::StatusCode::kInvalidArgument, "unrecognized feature gate: NodeSwap"));
}

TEST(OverrideSourcesTest, AKubeletConfigurationCannotNameOurGates) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({FromKubeletConfiguration({{"Ours", true}, {"OursBeta", false}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_FALSE(gates->Enabled(kOurs));
  EXPECT_TRUE(gates->Enabled(kOursBeta));
  EXPECT_THAT(gates->ignored(), ElementsAre("Ours", "OursBeta"));
}

TEST(OverrideSourcesTest, AllAlphaAndAllBetaOfAKubeletConfigurationReachKubernetesGatesOnly) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({FromKubeletConfiguration({{"AllAlpha", true}, {"AllBeta", false}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_TRUE(gates->Enabled(kTheirs));
  EXPECT_FALSE(gates->Enabled(kOurs));
  EXPECT_TRUE(gates->Enabled(kOursBeta));
  EXPECT_THAT(gates->ignored(), IsEmpty());
  EXPECT_EQ(gates->States().front(),
            (GateState{"AllAlpha", "kubelet", Stage::kAlpha, false, true, false, true}));
}

TEST(OverrideSourcesTest, AllAlphaAndAllBetaOfAFlagReachAllComponents) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve({Flag({{"AllAlpha", true}, {"AllBeta", false}})});
  ASSERT_THAT(gates, IsOk());
  EXPECT_TRUE(gates->Enabled(kTheirs));
  EXPECT_TRUE(gates->Enabled(kOurs));
  EXPECT_FALSE(gates->Enabled(kOursBeta));
}

TEST(OverrideSourcesTest, EmulationNeverHidesOurGates) {
  const absl::StatusOr<FeatureGates> gates = Resolve({Flag({{"Ours", true}})}, {1, 24});
  ASSERT_THAT(gates, IsOk());
  EXPECT_TRUE(gates->Enabled(kOurs));
  EXPECT_EQ(ToString(*gates), "AllAlpha=false,AllBeta=false,Ours=true,OursBeta=true");
  EXPECT_THAT(Resolve({Flag({{"Theirs", true}})}, {1, 24}),
              StatusIs(absl::StatusCode::kInvalidArgument, "unrecognized feature gate: Theirs"));
}

TEST(OverrideSourcesTest, StatesSayWhoseAGateIs) {
  const absl::StatusOr<FeatureGates> gates = Resolve({});
  ASSERT_THAT(gates, IsOk());
  std::vector<std::string> owners;
  for (const GateState& state : gates->States()) owners.push_back(state.component);
  EXPECT_THAT(owners, ElementsAre("", "", "kube-iptables-agent", "kube-iptables-agent", "kubelet",
                                  "kubelet"));
}

// A source of one component may also be a strict one.
TEST(OverrideSourcesTest, AStrictSourceOfOneComponentRefusesTheGatesOfOthers) {
  const Overrides strict{.values = {{"Ours", true}}, .component = "kubelet"};
  EXPECT_THAT(Resolve({strict}),
              StatusIs(absl::StatusCode::kInvalidArgument, "unrecognized feature gate: Ours"));
}

}  // namespace
}  // namespace kipt::featuregates
