// SPDX-License-Identifier: Apache-2.0
//
// Several components and several sources of overrides, each with its own reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "featuregates/feature_gates.h"
#include "featuregates/known_features.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOk;
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

struct Row {
  const char* name;
  std::vector<Overrides> sources;
  // The value of each gate that is not its default, and the gates that are handed back; or why
  // none.
  std::string outcome;
};

std::string Outcome(const absl::StatusOr<FeatureGates>& gates) {
  if (!gates.ok()) return std::string(gates.status().message());
  const FeatureGates defaults = *Resolve({});
  std::string outcome;
  for (const Feature* feature : {&kOurs, &kOursBeta, &kTheirs, &kTheirsLocked}) {
    if (gates->Enabled(*feature) == defaults.Enabled(*feature)) continue;
    absl::StrAppend(&outcome, feature->name, gates->Enabled(*feature) ? " on " : " off ");
  }
  for (const std::string& gate : gates->ignored()) absl::StrAppend(&outcome, "not ", gate, " ");
  return outcome;
}

TEST(OverrideSourcesTest, EachReachesItsGatesInItsTurn) {
  const auto file = [](GateValues values) { return FromKubeletConfiguration(std::move(values)); };
  const Overrides both = Flag({{"AllAlpha", true}, {"AllBeta", false}});
  const Overrides strict{.values = {{"Ours", true}}, .component = "kubelet"};
  const Row rows[] = {
      {"the later source wins, gate by gate",
       List(Flag({{"Theirs", true}, {"OursBeta", false}}), Flag({{"Ours", true}}),
            Flag({{"Theirs", false}})),
       "Ours on OursBeta off "},
      {"a file must not unlock", List(file({{"TheirsLocked", false}})),
       "cannot set feature gate TheirsLocked to false, feature is locked to true"},
      {"a flag takes back what the file must not set",
       List(file({{"TheirsLocked", false}}), Flag({{"TheirsLocked", true}})), ""},
      {"a later AllAlpha replaces the earlier one",
       List(Flag({{"AllAlpha", true}}), Flag({{"AllAlpha", false}})), ""},
      {"a gate's own name in the file wins over AllAlpha in the flag",
       List(file({{"Theirs", false}}), Flag({{"AllAlpha", true}})), "Ours on "},
      {"unknown gates of a kubelet configuration are handed back",
       List(file({{"NodeSwap", true}, {"CPUManager", false}, {"Theirs", true}})),
       "Theirs on not CPUManager not NodeSwap "},
      {"an unknown gate of a flag is an error though the file names it too",
       List(file({{"NodeSwap", true}}), Flag({{"NodeSwap", true}})),
       "unrecognized feature gate: NodeSwap"},
      {"a kubelet configuration cannot name our gates",
       List(file({{"Ours", true}, {"OursBeta", false}})), "not Ours not OursBeta "},
      {"AllAlpha and AllBeta of a kubelet configuration reach Kubernetes' gates only",
       List(FromKubeletConfiguration(both.values)), "Theirs on "},
      {"AllAlpha and AllBeta of a flag reach all components", List(both),
       "Ours on OursBeta off Theirs on "},
      {"what does not reach a gate replaces no earlier value",
       List(Flag({{"Ours", true}}), file({{"Ours", false}})), "Ours on not Ours "},
      {"an unknown gate of a flag is an error though a later file names it too",
       List(Flag({{"NodeSwap", true}}), file({{"NodeSwap", true}})),
       "unrecognized feature gate: NodeSwap"},
      {"AllAlpha of a kubelet configuration leaves an earlier one to our gates",
       List(Flag({{"AllAlpha", true}}), file({{"AllAlpha", false}})), "Ours on "},
      {"a strict source of one component refuses the gates of others", List(strict),
       "unrecognized feature gate: Ours"},
  };
  for (const Row& row : rows) EXPECT_EQ(Outcome(Resolve(row.sources)), row.outcome) << row.name;
}

TEST(OverrideSourcesTest, EmulationNeverHidesOurGates) {
  const absl::StatusOr<FeatureGates> gates = Resolve({Flag({{"Ours", true}})}, {1, 24});
  ASSERT_THAT(gates, IsOk());
  EXPECT_EQ(ToString(*gates), "AllAlpha=false,AllBeta=false,Ours=true,OursBeta=true");
  EXPECT_EQ(Outcome(Resolve({Flag({{"Theirs", true}})}, {1, 24})),
            "unrecognized feature gate: Theirs");
}

TEST(OverrideSourcesTest, StatesNameTheComponentOfEachGate) {
  std::vector<std::string> owners;
  const FeatureGates defaults = *Resolve({});
  for (const GateState& state : defaults.States()) owners.push_back(state.component);
  EXPECT_THAT(owners, ElementsAre("", "", "kube-iptables-agent", "kube-iptables-agent", "kubelet",
                                  "kubelet"));
  const auto all_alpha = Resolve({FromKubeletConfiguration({{"AllAlpha", true}})});
  EXPECT_EQ(all_alpha->States().front(),
            (GateState{"AllAlpha", "kubelet", Stage::kAlpha, false, true, false, true}));
}

}  // namespace
}  // namespace kipt::featuregates
