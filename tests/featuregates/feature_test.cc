// SPDX-License-Identifier: Apache-2.0
#include "featuregates/feature.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOk;
using ::kipt::testing::StatusIs;

absl::Status Check(const std::vector<const Feature*>& features) {
  return CheckDeclarations({Component{"test", {1, 30}, features}});
}

// Of release 1.`minor`.
Milestone At(int minor, Stage stage, bool on, bool locked = false) {
  return {{1, minor}, stage, on, locked};
}

TEST(FeatureTest, HasTheStageTextsOfComponentBase) {
  EXPECT_EQ(StageLabel(Stage::kPreAlpha), "PRE-ALPHA");
  EXPECT_EQ(StageLabel(Stage::kAlpha), "ALPHA");
  EXPECT_EQ(StageLabel(Stage::kBeta), "BETA");
  EXPECT_EQ(StageLabel(Stage::kGA), "");
  EXPECT_EQ(StageLabel(Stage::kDeprecated), "DEPRECATED");
}

TEST(FeatureTest, NamesGAForPeople) {
  EXPECT_EQ(StageName(Stage::kGA), "GA");
  EXPECT_EQ(StageName(Stage::kBeta), "BETA");
}

TEST(FeatureTest, CountsTheLastMilestoneThatHasCome) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}, {{1, 27}, Stage::kBeta, true}};
  const Feature feature{.name = "A", .milestones = life, .removed = Version{1, 29}};
  EXPECT_EQ(MilestoneAt(feature, {1, 24}), nullptr);
  EXPECT_EQ(MilestoneAt(feature, {1, 25}), &life[0]);
  EXPECT_EQ(MilestoneAt(feature, {1, 26}), &life[0]);
  EXPECT_EQ(MilestoneAt(feature, {1, 27}), &life[1]);
  EXPECT_EQ(MilestoneAt(feature, {1, 30}), &life[1]);
}

TEST(FeatureTest, CanBeNamedFromTheFirstMilestoneUntilRemoved) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}};
  const Feature feature{.name = "A", .milestones = life, .removed = Version{1, 29}};
  EXPECT_FALSE(IsNameable(feature, {1, 24}));
  EXPECT_TRUE(IsNameable(feature, {1, 25}));
  EXPECT_TRUE(IsNameable(feature, {1, 28}));
  EXPECT_FALSE(IsNameable(feature, {1, 29}));
  EXPECT_FALSE(IsNameable(feature, {2, 0}));
}

TEST(CheckDeclarationsTest, RefusesLivesThatComponentBaseRefuses) {
  struct Row {
    const char* name;
    std::vector<Milestone> life;
    const char* error;
    std::optional<Version> removed = {};
  };
  const Row rows[] = {
      {"empty", std::vector<Milestone>(), "feature \"A\" has no milestones"},
      {"begins deprecated", List(At(27, Stage::kDeprecated, false)),
       "feature \"A\" introduced as deprecated must provide a 1.0 entry indicating initial state"},
      {"backwards", List(At(27, Stage::kAlpha, false), At(26, Stage::kBeta, true)),
       "feature \"A\" lists version transitions in decreasing order (1.26 < 1.27)"},
      {"twice the same release", List(At(27, Stage::kAlpha, false), At(27, Stage::kBeta, true)),
       "feature \"A\" lists duplicate entries with the same versions (1.27 = 1.27)"},
      {"no change", List(At(27, Stage::kAlpha, false), At(28, Stage::kAlpha, false)),
       "feature \"A\" lists transition without stability change (1.27 -> 1.28)"},
      {"unlocks", List(At(27, Stage::kBeta, true, true), At(28, Stage::kGA, true, false)),
       "feature \"A\" must not unlock after locking to default"},
      {"resurrects",
       List(At(27, Stage::kBeta, true), At(28, Stage::kDeprecated, false),
            At(29, Stage::kGA, true)),
       "deprecated feature \"A\" must not resurrect from its terminal state"},
      {"beta to alpha", List(At(27, Stage::kBeta, true), At(28, Stage::kAlpha, false)),
       "feature \"A\" regresses stability from more stable level to ALPHA in 1.28"},
      {"GA to beta", List(At(27, Stage::kGA, true), At(28, Stage::kBeta, true)),
       "feature \"A\" regresses stability from more stable level to BETA in 1.28"},
      {"removed too early", List(At(27, Stage::kAlpha, false), At(28, Stage::kBeta, true)),
       "feature \"A\" is removed in 1.28, not after its last milestone (1.28)", Version{1, 28}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Feature feature{.name = "A", .milestones = row.life, .removed = row.removed};
    EXPECT_THAT(Check({&feature}), StatusIs(absl::StatusCode::kInternal, row.error));
  }
}

TEST(CheckDeclarationsTest, AcceptsWholeLives) {
  const Milestone usual[] = {{{1, 24}, Stage::kPreAlpha},
                             {{1, 25}, Stage::kAlpha, false},
                             {{1, 27}, Stage::kBeta, false},
                             {{1, 28}, Stage::kBeta, true},
                             {{1, 29}, Stage::kGA, true, true}};
  const Milestone withdrawn[] = {{{1, 25}, Stage::kAlpha, false},
                                 {{1, 27}, Stage::kDeprecated, false},
                                 {{1, 28}, Stage::kDeprecated, false, true}};
  const Milestone behaviour[] = {{{1, 0}, Stage::kDeprecated, true}};
  const Feature a{.name = "A", .milestones = usual};
  const Feature b{.name = "B", .milestones = withdrawn, .removed = Version{1, 29}};
  const Feature c{.name = "C", .milestones = behaviour};
  EXPECT_THAT(Check({&a, &b, &c}), IsOk());
}

TEST(CheckDeclarationsTest, RefusesANameTwiceOverAllComponents) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}};
  const Feature one{.name = "A", .milestones = life};
  const Feature other{.name = "A", .milestones = life};
  const Feature* const ones[] = {&one};
  const Feature* const others[] = {&other};
  EXPECT_THAT(CheckDeclarations({Component{"kubelet", {1, 27}, ones},
                                 Component{"kube-iptables-agent", {0, 1}, others}}),
              StatusIs(absl::StatusCode::kInternal, "feature gate \"A\" is declared twice"));
}

TEST(CheckDeclarationsTest, RefusesAFeatureNamedLikeASpecialGate) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}};
  for (const absl::string_view name : {"AllAlpha", "AllBeta"}) {
    const Feature feature{.name = name, .milestones = life};
    EXPECT_THAT(Check({&feature}), StatusIs(absl::StatusCode::kInternal)) << name;
  }
}

TEST(CheckDeclarationsTest, RefusesDependenciesThatComponentBaseRefuses) {
  struct Row {
    const char* name;
    Milestone own;
    Milestone needed;
    const char* error;
  };
  const Row rows[] = {
      {"beta on alpha", At(27, Stage::kBeta, false), At(27, Stage::kAlpha, false),
       "BETA feature A cannot depend on ALPHA feature B at version 1.27"},
      {"GA on beta", At(27, Stage::kGA, false), At(27, Stage::kBeta, false),
       "GA feature A cannot depend on BETA feature B at version 1.27"},
      {"alpha on deprecated", At(27, Stage::kAlpha, false), At(0, Stage::kDeprecated, false),
       "ALPHA feature A cannot depend on DEPRECATED feature B at version 1.27"},
      {"beta on what comes later", At(27, Stage::kBeta, false), At(28, Stage::kBeta, false),
       "BETA feature A cannot depend on PRE-ALPHA feature B at version 1.27"},
      {"on by default on off by default", At(27, Stage::kBeta, true), At(27, Stage::kBeta, false),
       "default-enabled feature A cannot depend on default-disabled feature B at version 1.27"},
      {"locked on free", At(27, Stage::kGA, true, true), At(27, Stage::kGA, true, false),
       "locked-to-default feature A cannot depend on unlocked feature B at version 1.27"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Milestone own[] = {row.own};
    const Milestone needed[] = {row.needed};
    const Feature b{.name = "B", .milestones = needed};
    const Feature* const needs[] = {&b};
    const Feature a{.name = "A", .milestones = own, .depends_on = needs};
    EXPECT_THAT(Check({&a, &b}), StatusIs(absl::StatusCode::kInternal, row.error));
  }
}

TEST(CheckDeclarationsTest, AcceptsADependencyThatIsAtLeastAsFar) {
  const Milestone own[] = {{{1, 26}, Stage::kAlpha, false}, {{1, 28}, Stage::kBeta, true}};
  // Not there at 1.26, where the other one is only an alpha.
  const Milestone needed[] = {{{1, 27}, Stage::kBeta, true}, {{1, 29}, Stage::kGA, true, true}};
  const Feature b{.name = "B", .milestones = needed};
  const Feature* const needs[] = {&b};
  const Feature a{.name = "A", .milestones = own, .depends_on = needs};
  EXPECT_THAT(Check({&a, &b}), IsOk());
}

TEST(CheckDeclarationsTest, RefusesADependencyOfNoComponentOrOfAnother) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}};
  const Feature b{.name = "B", .milestones = life};
  const Feature* const needs[] = {&b};
  const Feature a{.name = "A", .milestones = life, .depends_on = needs};
  const auto refused =
      StatusIs(absl::StatusCode::kInternal, "cannot add dependency from A to unknown feature B");
  EXPECT_THAT(Check({&a}), refused);
  const Feature* const first[] = {&a};
  EXPECT_THAT(
      CheckDeclarations({Component{"one", {1, 27}, first}, Component{"two", {1, 27}, needs}}),
      refused);
}

// Features that need each other can only be declared at namespace scope.
constexpr Milestone kCycleLife[] = {{{1, 25}, Stage::kAlpha, false}};
extern const Feature kCycleA;
constexpr const Feature* kNeedsA[] = {&kCycleA};
constexpr Feature kCycleC = {.name = "C", .milestones = kCycleLife, .depends_on = kNeedsA};
constexpr const Feature* kNeedsC[] = {&kCycleC};
constexpr Feature kCycleB = {.name = "B", .milestones = kCycleLife, .depends_on = kNeedsC};
constexpr const Feature* kNeedsB[] = {&kCycleB};
const Feature kCycleA = {.name = "A", .milestones = kCycleLife, .depends_on = kNeedsB};

TEST(CheckDeclarationsTest, RefusesACycle) {
  EXPECT_THAT(Check({&kCycleA, &kCycleB, &kCycleC}),
              StatusIs(absl::StatusCode::kInternal, "cycle detected with feature A"));
}

TEST(CheckDeclarationsTest, AcceptsTwoWaysToOneFeature) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}};
  const Feature d{.name = "D", .milestones = life};
  const Feature* const needs_d[] = {&d};
  const Feature b{.name = "B", .milestones = life, .depends_on = needs_d};
  const Feature c{.name = "C", .milestones = life, .depends_on = needs_d};
  const Feature* const needs_both[] = {&b, &c};
  const Feature a{.name = "A", .milestones = life, .depends_on = needs_both};
  EXPECT_THAT(Check({&a, &b, &c, &d}), IsOk());
}

}  // namespace
}  // namespace kipt::featuregates
