// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "featuregates/known_features.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOk;
using ::kipt::testing::IsOkAndHolds;
using ::kipt::testing::StatusIs;

constexpr char kName[] = "IPTablesOwnershipCleanup";
constexpr char kUnrecognized[] = "unrecognized feature gate: IPTablesOwnershipCleanup";
constexpr char kLocked[] =
    "cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to true";
constexpr char kGAWarning[] =
    "Setting GA feature gate IPTablesOwnershipCleanup=true. It will be removed in a future "
    "release.";

absl::StatusOr<FeatureGates> Resolve(Version emulated, GateValues values) {
  return FeatureGates::Resolve({KubeletComponent(emulated), AgentComponent({0, 1})},
                               {Overrides{.values = std::move(values)}});
}

struct Release {
  int minor;
  bool enabled;
  std::optional<Stage> stage;  // nothing where the name is unknown
};
constexpr Release kReleases[] = {
    {23, false, std::nullopt},  {24, false, std::nullopt}, {25, false, Stage::kAlpha},
    {26, false, Stage::kAlpha}, {27, true, Stage::kBeta},  {28, true, Stage::kGA},
    {29, true, Stage::kGA},     {30, true, std::nullopt},  {31, true, std::nullopt},
    {32, true, std::nullopt},   {33, true, std::nullopt},  {34, true, std::nullopt},
    {35, true, std::nullopt},   {36, true, std::nullopt},
};

TEST(IPTablesOwnershipCleanupTest, HasItsDefaultAndStageInEachRelease) {
  for (const Release& release : kReleases) {
    SCOPED_TRACE(release.minor);
    const absl::StatusOr<FeatureGates> gates = Resolve({1, release.minor}, {});
    ASSERT_THAT(gates, IsOk());
    EXPECT_EQ(gates->Enabled(kIPTablesOwnershipCleanup), release.enabled);
    EXPECT_EQ(gates->States().size(), release.stage.has_value() ? 3U : 2U);
    if (!release.stage.has_value()) continue;
    const bool locked = *release.stage == Stage::kGA;
    EXPECT_EQ(gates->States().back(), (GateState{kName, "kubelet", *release.stage, release.enabled,
                                                 release.enabled, locked, false}));
  }
}

TEST(IPTablesOwnershipCleanupTest, CanBeSetWhereTheReleaseLetsItBeSet) {
  for (const Release& release : kReleases) {
    SCOPED_TRACE(release.minor);
    const absl::StatusOr<FeatureGates> on = Resolve({1, release.minor}, {{kName, true}});
    const absl::StatusOr<FeatureGates> off = Resolve({1, release.minor}, {{kName, false}});
    if (!release.stage.has_value()) {
      EXPECT_THAT(on, StatusIs(absl::StatusCode::kInvalidArgument, kUnrecognized));
      EXPECT_THAT(off, StatusIs(absl::StatusCode::kInvalidArgument, kUnrecognized));
      continue;
    }
    ASSERT_THAT(on, IsOk());
    EXPECT_TRUE(on->Enabled(kIPTablesOwnershipCleanup));
    if (*release.stage == Stage::kGA) {
      EXPECT_THAT(on->warnings(), ElementsAre(kGAWarning));
      EXPECT_THAT(off, StatusIs(absl::StatusCode::kInvalidArgument, kLocked));
      continue;
    }
    EXPECT_THAT(on->warnings(), IsEmpty());
    ASSERT_THAT(off, IsOk());
    EXPECT_FALSE(off->Enabled(kIPTablesOwnershipCleanup));
  }
}

TEST(KubeletFeaturesTest, TheDeclarationsOfTheProjectAreSound) {
  EXPECT_THAT(
      CheckDeclarations({KubeletComponent(kDefaultEmulatedVersion), AgentComponent({0, 1})}),
      IsOk());
}

TEST(EmulatedVersionTest, TakesKnownReleasesAndWarnsThatANewerOneIsTakenForTheNewest) {
  for (int minor = 24; minor <= 37; ++minor) {
    const Version version{1, minor};
    EXPECT_THAT(ResolveEmulatedVersion(ToString(version)),
                IsOkAndHolds(EmulatedVersion{version, ""}));
  }
  for (const char* text : {"1.38", "1.100"}) {
    EXPECT_THAT(ResolveEmulatedVersion(text),
                IsOkAndHolds(EmulatedVersion{
                    {1, 37},
                    std::string("--emulated-version ") + text +
                        " is newer than the newest release known here; behaving as 1.37"}));
  }
}

TEST(EmulatedVersionTest, RefusesWhatItCannotEmulateAndNamesTheRange) {
  constexpr char kRange[] = "accepted are 1.24 to 1.37, and newer 1.x, which behave as 1.37";
  for (const char* text : {"1.23", "1.0", "0.30", "2.0", "2.27"}) {
    EXPECT_THAT(
        ResolveEmulatedVersion(text),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 std::string("--emulated-version: cannot emulate ") + text + "; " + kRange));
  }
  for (const char* text : {"", "1.27.3", "one", "-1.27"}) {
    EXPECT_THAT(ResolveEmulatedVersion(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--emulated-version: invalid version"),
                               HasSubstr("MAJOR.MINOR"), HasSubstr(kRange))));
  }
}

TEST(AgentFeaturesTest, ConnLabelMarkingIsAlphaAndOffSinceV07) {
  EXPECT_EQ(kConnLabelMarking.name, "ConnLabelMarking");
  ASSERT_EQ(kConnLabelMarking.milestones.size(), 1);
  const Milestone& life = kConnLabelMarking.milestones[0];
  EXPECT_EQ(life.since, (Version{0, 7}));
  EXPECT_EQ(life.stage, Stage::kAlpha);
  EXPECT_FALSE(life.enabled);
  EXPECT_FALSE(life.locked);
}

TEST(VersionTest, ParsesMajorAndMinorWithOrWithoutTheLetterAndPrintsThem) {
  EXPECT_THAT(ParseVersion("1.27"), IsOkAndHolds(Version{1, 27}));
  EXPECT_THAT(ParseVersion("v1.27"), IsOkAndHolds(Version{1, 27}));
  EXPECT_THAT(ParseVersion("0.0"), IsOkAndHolds(Version{0, 0}));
  EXPECT_THAT(ParseVersion("2147483647.10"), IsOkAndHolds(Version{2147483647, 10}));
  EXPECT_EQ(ToString(Version{1, 27}), "1.27");
  EXPECT_LT((Version{1, 9}), (Version{1, 10}));
  EXPECT_LT((Version{1, 99}), (Version{2, 0}));
}

TEST(VersionTest, RefusesEverythingElseAndNamesTheForm) {
  const auto refused = [](absl::string_view quoted) {
    return StatusIs(
        absl::StatusCode::kInvalidArgument,
        AllOf(HasSubstr(absl::StrCat("invalid version ", quoted)),
              HasSubstr("write MAJOR.MINOR without a patch level"), HasSubstr("such as 1.27")));
  };
  for (const char* text :
       {"", "1.27.3", "1.27-rc.1", "1", "1.", ".27", "v", "V1.27", "vv1.27", "-1.27", "1.-27",
        "1.+27", "1.2147483648", "99999999999999999999.1", "1.027", "1.07", " 1.27", "latest"}) {
    EXPECT_THAT(ParseVersion(text), refused(absl::StrCat("\"", text, "\""))) << text;
  }
  EXPECT_THAT(ParseVersion("1.27\n"), refused("\"1.27\\n\""));
}

}  // namespace
}  // namespace kipt::featuregates
