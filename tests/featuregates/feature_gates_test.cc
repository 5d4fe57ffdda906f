// SPDX-License-Identifier: Apache-2.0
//
// One component, one source: the semantics of k8s.io/component-base/featuregate.
#include "featuregates/feature_gates.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOk;
using ::kipt::testing::StatusIs;

template <Stage stage, bool on, bool locked = false>
constexpr Milestone kSince120[] = {{{1, 20}, stage, on, locked}};
constexpr Milestone kDeprecatedLife[] = {{{1, 0}, Stage::kDeprecated, false}};
constexpr Milestone kFutureLife[] = {{{1, 28}, Stage::kBeta, true}};

constexpr Feature kPreAlpha{.name = "PreAlpha", .milestones = kSince120<Stage::kPreAlpha, false>};
constexpr Feature kAlpha{.name = "Alpha", .milestones = kSince120<Stage::kAlpha, false>};
constexpr Feature kAlpha2{.name = "Alpha2", .milestones = kSince120<Stage::kAlpha, false>};
constexpr Feature kBeta{.name = "Beta", .milestones = kSince120<Stage::kBeta, false>};
constexpr Feature kBetaOn{.name = "BetaOn", .milestones = kSince120<Stage::kBeta, true>};
constexpr Feature kLockedBeta{.name = "LockedBeta",
                              .milestones = kSince120<Stage::kBeta, true, true>};
constexpr Feature kGA{.name = "GA", .milestones = kSince120<Stage::kGA, true>};
constexpr Feature kLockedOn{.name = "LockedOn", .milestones = kSince120<Stage::kGA, true, true>};
constexpr Feature kLockedOff{.name = "LockedOff", .milestones = kSince120<Stage::kGA, false, true>};
constexpr Feature kDeprecated{.name = "Deprecated", .milestones = kDeprecatedLife};
constexpr Feature kFuture{.name = "Future", .milestones = kFutureLife};
constexpr Feature kRemoved{
    .name = "Removed", .milestones = kSince120<Stage::kAlpha, false>, .removed = Version{1, 27}};
constexpr Feature kRemovedOn{.name = "RemovedOn",
                             .milestones = kSince120<Stage::kGA, true, true>,
                             .removed = Version{1, 25}};

constexpr const Feature* kFeatures[] = {
    &kPreAlpha, &kAlpha,     &kAlpha2,     &kBeta,   &kBetaOn,  &kLockedBeta, &kGA,
    &kLockedOn, &kLockedOff, &kDeprecated, &kFuture, &kRemoved, &kRemovedOn};

absl::StatusOr<FeatureGates> Resolve(absl::Span<const Feature* const> features,
                                     absl::string_view flag) {
  absl::StatusOr<GateValues> values = ParseFeatureGatesFlag(flag);
  if (!values.ok()) return values.status();
  return FeatureGates::Resolve({Component{"kubelet", {1, 27}, features}},
                               {Overrides{.values = *std::move(values)}});
}

TEST(FeatureGatesTest, RefusesInTheWordsOfComponentBase) {
  const std::pair<const char*, const char*> rows[] = {
      {"FooBarBaz=true", "unrecognized feature gate: FooBarBaz"},
      {"=true", "unrecognized feature gate: "},
      {"Future=true", "unrecognized feature gate: Future"},
      {"Removed=true", "unrecognized feature gate: Removed"},
      {"LockedOn=false", "cannot set feature gate LockedOn to false, feature is locked to true"},
      {"LockedOff=true", "cannot set feature gate LockedOff to true, feature is locked to false"},
      {"LockedBeta=0", "cannot set feature gate LockedBeta to false, feature is locked to true"},
      {"PreAlpha=true",
       "cannot set feature gate PreAlpha to true, feature is PreAlpha at emulated version 1.27"},
      {"PreAlpha=false",
       "cannot set feature gate PreAlpha to false, feature is PreAlpha at emulated version 1.27"},
      {"PreAlpha=true,LockedOn=false,LockedOff=true",
       "[cannot set feature gate LockedOff to true, feature is locked to false, "
       "cannot set feature gate LockedOn to false, feature is locked to true, "
       "cannot set feature gate PreAlpha to true, feature is PreAlpha at emulated version 1.27]"},
      {"PreAlpha=true,LockedOn=false,Nope=true",
       "[cannot set feature gate LockedOn to false, feature is locked to true, "
       "unrecognized feature gate: Nope]"},
      {"Nope=true,Never=true", "unrecognized feature gate: Never"},
  };
  for (const auto& [flag, error] : rows) {
    EXPECT_THAT(Resolve(kFeatures, flag), StatusIs(absl::StatusCode::kInvalidArgument, error))
        << flag;
  }
}

TEST(FeatureGatesTest, WarnsOfNamesThatWillGo) {
  const absl::StatusOr<FeatureGates> gates =
      Resolve(kFeatures, "LockedOn=true,Alpha=true,GA=false,Deprecated=true,BetaOn=true");
  ASSERT_THAT(gates, IsOk());
  EXPECT_THAT(
      gates->warnings(),
      ElementsAre("Setting deprecated feature gate Deprecated=true. It will be removed in a "
                  "future release.",
                  "Setting GA feature gate GA=false. It will be removed in a future release.",
                  "Setting GA feature gate LockedOn=true. It will be removed in a future "
                  "release."));
  EXPECT_FALSE(gates->Enabled(kGA));
  EXPECT_TRUE(gates->Enabled(kDeprecated));
}

// The gates that are on, except those that no setting changes: GA, LockedOn and RemovedOn.
std::string On(const FeatureGates& gates) {
  std::vector<absl::string_view> on;
  for (const Feature* feature : kFeatures) {
    const bool always = feature == &kGA || feature == &kLockedOn || feature == &kRemovedOn;
    EXPECT_TRUE(gates.Enabled(*feature) || !always) << feature->name;
    if (gates.Enabled(*feature) && !always) on.push_back(feature->name);
  }
  return absl::StrJoin(on, " ");
}

// A gate before its first milestone is off; of one that was removed the last milestone holds. No
// AllAlpha reaches another stage, and AllBeta overrides a lock, as in component-base.
TEST(FeatureGatesTest, AllAlphaAndAllBetaYieldToAGatesOwnNameInEveryOrder) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "BetaOn LockedBeta"},
      {"Alpha=true,BetaOn=false", "Alpha LockedBeta"},
      {"AllBeta=false,LockedBeta=true", "LockedBeta"},
      {"AllAlpha=true", "Alpha Alpha2 BetaOn LockedBeta"},
      {"AllAlpha=false", "BetaOn LockedBeta"},
      {"AllAlpha=true,Alpha=false", "Alpha2 BetaOn LockedBeta"},
      {"AllAlpha=false,Alpha=true", "Alpha BetaOn LockedBeta"},
      {"Beta=true,AllAlpha=false", "Beta BetaOn LockedBeta"},
      {"AllBeta=true", "Beta BetaOn LockedBeta"},
      {"AllBeta=false", ""},
      {"AllBeta=true,Beta=false", "BetaOn LockedBeta"},
      {"AllBeta=false,Beta=true", "Beta"},
      {"BetaOn=true,AllBeta=false", "BetaOn"},
      {"AllBeta=false,AllAlpha=true", "Alpha Alpha2"},
      {"AllAlpha=true,AllBeta=false,Alpha2=false,BetaOn=true", "Alpha BetaOn"},
  };
  for (const auto& [flag, on] : rows) {
    const absl::StatusOr<FeatureGates> gates = Resolve(kFeatures, flag);
    ASSERT_THAT(gates, IsOk()) << flag;
    EXPECT_EQ(On(*gates), on) << flag;
    EXPECT_THAT(gates->warnings(), IsEmpty()) << flag;
    EXPECT_THAT(gates->ignored(), IsEmpty()) << flag;
  }
}

TEST(FeatureGatesTest, ListsStatesInNameOrder) {
  constexpr const Feature* kSome[] = {&kLockedOn, &kFuture, &kBetaOn,
                                      &kPreAlpha, &kAlpha,  &kRemoved};
  const absl::StatusOr<FeatureGates> gates = Resolve(kSome, "AllAlpha=true,BetaOn=false");
  ASSERT_THAT(gates, IsOk());
  EXPECT_THAT(gates->States(),
              ElementsAre(GateState{"AllAlpha", "", Stage::kAlpha, false, true, false, true},
                          GateState{"AllBeta", "", Stage::kBeta, false, false, false, false},
                          GateState{"Alpha", "kubelet", Stage::kAlpha, false, true, false, false},
                          GateState{"BetaOn", "kubelet", Stage::kBeta, true, false, false, true},
                          GateState{"LockedOn", "kubelet", Stage::kGA, true, true, true, false}));
  EXPECT_EQ(ToString(*gates), "AllAlpha=true,AllBeta=false,Alpha=true,BetaOn=false,LockedOn=true");
}

TEST(FeatureGatesTest, PrintsKnownFeaturesAsTheHelpOfKubernetesDoes) {
  const absl::StatusOr<FeatureGates> gates = Resolve(kFeatures, "Alpha=true,AllBeta=false");
  ASSERT_THAT(gates, IsOk());
  EXPECT_THAT(gates->KnownFeatures(), ElementsAre("AllAlpha=true|false (ALPHA - default=false)",
                                                  "AllBeta=true|false (BETA - default=false)",
                                                  "Alpha2=true|false (ALPHA - default=false)",
                                                  "Alpha=true|false (ALPHA - default=false)",
                                                  "Beta=true|false (BETA - default=false)",
                                                  "BetaOn=true|false (BETA - default=true)",
                                                  "LockedBeta=true|false (BETA - default=true)"));
}

TEST(FeatureGatesTest, KnowsOnlyTheSpecialGatesWithoutComponents) {
  const absl::StatusOr<FeatureGates> gates = FeatureGates::Resolve({}, {});
  ASSERT_THAT(gates, IsOk());
  EXPECT_EQ(ToString(*gates), "AllAlpha=false,AllBeta=false");
  EXPECT_FALSE(gates->Enabled(kGA)) << "a feature of no component is off";
}

TEST(FeatureGatesTest, RefusesWrongDeclarations) {
  constexpr const Feature* kTwice[] = {&kAlpha, &kAlpha};
  EXPECT_THAT(Resolve(kTwice, ""), StatusIs(absl::StatusCode::kInternal));
}

TEST(FeatureGatesTest, ChecksThatDependenciesAreEnabled) {
  const Feature d{.name = "D", .milestones = kSince120<Stage::kAlpha, false>};
  const Feature c{.name = "C", .milestones = kSince120<Stage::kAlpha, false>};
  const Feature* const needs_d[] = {&d};
  const Feature b{
      .name = "B", .milestones = kSince120<Stage::kAlpha, false>, .depends_on = needs_d};
  // In neither order of names, and one of them twice.
  const Feature* const needs_cb[] = {&c, &b, &c};
  const Feature a{
      .name = "A", .milestones = kSince120<Stage::kAlpha, false>, .depends_on = needs_cb};
  const Feature* const features[] = {&a, &b, &c, &d, &kLockedOn};
  for (const char* flag : {"A=true,B=true,C=true,D=true", "AllAlpha=true", "", "C=true,D=true"}) {
    EXPECT_THAT(Resolve(features, flag), IsOk()) << flag;
  }
  const std::pair<const char*, const char*> rows[] = {
      {"A=true,C=true,D=true", "A is enabled, but depends on features that are disabled: [B]"},
      {"AllAlpha=true,C=false", "A is enabled, but depends on features that are disabled: [C]"},
      {"A=true", "A is enabled, but depends on features that are disabled: [B C]"},
      {"A=true,B=true",
       "[A is enabled, but depends on features that are disabled: [C], "
       "B is enabled, but depends on features that are disabled: [D]]"},
      {"A=true,LockedOn=false",
       "cannot set feature gate LockedOn to false, feature is locked to true"},
  };
  for (const auto& [flag, error] : rows) {
    EXPECT_THAT(Resolve(features, flag), StatusIs(absl::StatusCode::kInvalidArgument, error));
  }
}

TEST(FeatureGatesTest, DoesNotBlameARemovedGateForItsDependencies) {
  const Feature needed{.name = "Needed", .milestones = kSince120<Stage::kBeta, true>};
  const Feature* const needs[] = {&needed};
  const Feature gone{.name = "Gone",
                     .milestones = kSince120<Stage::kBeta, true>,
                     .removed = Version{1, 25},
                     .depends_on = needs};
  const Feature* const features[] = {&gone, &needed};
  EXPECT_THAT(Resolve(features, "Needed=false"), IsOk());
}

TEST(ParseFeatureGatesFlagTest, AcceptsWhatComponentBaseAccepts) {
  const std::pair<const char*, GateValues> rows[] = {
      {"", {}},
      {"A=true", {{"A", true}}},
      {",A=true,,B=f,", {{"A", true}, {"B", false}}},
      {" A = true ,\tB=\n0", {{"A", true}, {"B", false}}},
      {"A=true\xC2\xA0", {{"A", true}}},  // a no-break space
      {"A=true,B=true,A=false", {{"A", false}, {"B", true}}},
      {"=true", {{"", true}}},
  };
  for (const auto& [text, values] : rows) {
    EXPECT_THAT(ParseFeatureGatesFlag(text), ::kipt::testing::IsOkAndHolds(values)) << text;
  }
}

TEST(ParseFeatureGatesFlagTest, RefusesInTheWordsOfKubeletsFlag) {
  const auto not_a_bool = [](const std::string& value) {
    return absl::StrCat("invalid value of A: ", value, ", err: strconv.ParseBool: parsing \"",
                        value, "\": invalid syntax");
  };
  const std::string malformed = "malformed pair, expect string=bool";
  const std::pair<const char*, std::string> rows[] = {
      {"A", malformed},
      {"B=true, A ", malformed},
      {"A=true, ", malformed},  // an entry of spaces is not empty
      {"A=banana", not_a_bool("banana")},
      {"A=", not_a_bool("")},
      {"A=true=false", not_a_bool("true=false")},
      {"A=x,B", not_a_bool("x")},
  };
  for (const auto& [text, error] : rows) {
    EXPECT_THAT(ParseFeatureGatesFlag(text), StatusIs(absl::StatusCode::kInvalidArgument, error));
  }
}

}  // namespace
}  // namespace kipt::featuregates
