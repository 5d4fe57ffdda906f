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
  EXPECT_EQ(StageName(Stage::kGA), "GA") << "for people";
  EXPECT_EQ(StageName(Stage::kBeta), "BETA");
}

TEST(FeatureTest, CountsTheLastMilestoneThatHasComeAndCanBeNamedUntilRemoved) {
  const Milestone life[] = {{{1, 25}, Stage::kAlpha, false}, {{1, 27}, Stage::kBeta, true}};
  const Feature feature{.name = "A", .milestones = life, .removed = Version{1, 29}};
  struct Row {
    Version version;
    const Milestone* milestone;
    bool nameable;
  };
  for (const Row& row :
       {Row{{1, 24}, nullptr, false}, Row{{1, 25}, &life[0], true}, Row{{1, 26}, &life[0], true},
        Row{{1, 27}, &life[1], true}, Row{{1, 28}, &life[1], true}, Row{{1, 29}, &life[1], false},
        Row{{2, 0}, &life[1], false}}) {
    SCOPED_TRACE(ToString(row.version));
    EXPECT_EQ(MilestoneAt(feature, row.version), row.milestone);
    EXPECT_EQ(IsNameable(feature, row.version), row.nameable);
  }
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
  // A dependency that is at least as far, and not there at 1.26, where the other is only an alpha.
  const Milestone own[] = {{{1, 26}, Stage::kAlpha, false}, {{1, 28}, Stage::kBeta, true}};
  const Milestone needed[] = {{{1, 27}, Stage::kBeta, true}, {{1, 29}, Stage::kGA, true, true}};
  const Feature e{.name = "E", .milestones = needed};
  const Feature* const needs[] = {&e};
  const Feature d{.name = "D", .milestones = own, .depends_on = needs};
  EXPECT_THAT(Check({&d, &e}), IsOk());
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

// Features that need each other can only be declared at namespace scope.
constexpr Milestone kCycleLife[] = {{{1, 25}, Stage::kAlpha, false}};
extern const Feature kCycleA;
constexpr const Feature* kNeedsA[] = {&kCycleA};
constexpr Feature kCycleC = {.name = "C", .milestones = kCycleLife, .depends_on = kNeedsA};
constexpr const Feature* kNeedsC[] = {&kCycleC};
constexpr Feature kCycleB = {.name = "B", .milestones = kCycleLife, .depends_on = kNeedsC};
constexpr const Feature* kNeedsB[] = {&kCycleB};
const Feature kCycleA = {.name = "A", .milestones = kCycleLife, .depends_on = kNeedsB};

TEST(CheckDeclarationsTest, RefusesACycleAndNotTwoWaysToOneFeature) {
  EXPECT_THAT(Check({&kCycleA, &kCycleB, &kCycleC}),
              StatusIs(absl::StatusCode::kInternal, "cycle detected with feature A"));
  const Feature d{.name = "D", .milestones = kCycleLife};
  const Feature* const needs_d[] = {&d};
  const Feature b{.name = "B", .milestones = kCycleLife, .depends_on = needs_d};
  const Feature c{.name = "C", .milestones = kCycleLife, .depends_on = needs_d};
  const Feature* const needs_both[] = {&b, &c};
  const Feature a{.name = "A", .milestones = kCycleLife, .depends_on = needs_both};
  EXPECT_THAT(Check({&a, &b, &c, &d}), IsOk());
}

TEST(CheckDeclarationsTest, RefusesNamesThatAreTakenAndDependenciesOfNoComponentOrOfAnother) {
  const auto refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInternal, message);
  };
  const Feature a{.name = "A", .milestones = kCycleLife};
  const Feature* const ones[] = {&a};
  const Feature other{.name = "A", .milestones = kCycleLife};
  const Feature* const others[] = {&other};
  EXPECT_THAT(CheckDeclarations({Component{"kubelet", {1, 27}, ones},
                                 Component{"kube-iptables-agent", {0, 1}, others}}),
              refused("feature gate \"A\" is declared twice"));
  for (const absl::string_view name : {"AllAlpha", "AllBeta"}) {
    const Feature feature{.name = name, .milestones = kCycleLife};
    EXPECT_THAT(Check({&feature}), StatusIs(absl::StatusCode::kInternal)) << name;
  }
  const Feature b{.name = "B", .milestones = kCycleLife, .depends_on = ones};
  const Feature* const needing[] = {&b};
  const std::string unknown = "cannot add dependency from B to unknown feature A";
  EXPECT_THAT(Check({&b}), refused(unknown));
  EXPECT_THAT(
      CheckDeclarations({Component{"one", {1, 27}, needing}, Component{"two", {1, 27}, ones}}),
      refused(unknown));
}

}  // namespace
}  // namespace kipt::featuregates
