// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/windows.h"

#include "tests/soak/judge_test.h"

namespace kipt::soak {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WindowsTest : public JudgeTest {
 protected:
  // The rules exist until somebody damages them, a second later; seen at once.
  void Break() {
    See(true, start_);
    Damage(broken_ - kMoment, broken_);
    See(false, broken_);
  }
  const absl::Time broken_ = start_ + absl::Seconds(1);
};

TEST_P(WindowsTest, ARuleMayBeMissingAsLongAsTheBoundAndNoLonger) {
  Break();
  See(false, broken_ + limits().repair);
  EXPECT_THAT(Judges(), IsEmpty());
  See(false, broken_ + limits().repair + kMoment);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, AWindowIsReportedOnce) {
  Break();
  See(false, broken_ + limits().repair + kMoment);
  See(false, broken_ + 2 * limits().repair);
  See(true, broken_ + 3 * limits().repair);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, ARepairThatNoReadSawInTimeIsLateToo) {
  Break();
  See(true, broken_ + limits().repair + kMoment);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, TheBoundCountsFromTheDaemonsReturn) {
  Break();
  windows_.DaemonIsAway();
  See(false, broken_ + 3 * limits().repair);
  EXPECT_THAT(Judges(), IsEmpty());
  windows_.DaemonIsBack();
  See(false, now_ + limits().repair);
  EXPECT_THAT(Judges(), IsEmpty());
  See(false, now_ + kMoment);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, TheBoundCountsFromWhenTheRulesAreDesired) {
  windows_.Expect(kAllGuards & ~Bit(kMasq4));
  Break();
  See(false, broken_ + 3 * limits().repair);
  EXPECT_THAT(Judges(), IsEmpty());
  windows_.Expect(kAllGuards);
  See(false, now_ + limits().repair);
  EXPECT_THAT(Judges(), IsEmpty());
  See(false, now_ + kMoment);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, AWindowThatNobodyAnnouncedIsTheDaemonsOwnDoing) {
  See(true, start_);
  See(false, broken_);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, AnAnnouncementCoversAWindowWithinTheSlackOfItsEnd) {
  Damage(start_, start_ + kMoment);
  See(true, start_ + kMoment + limits().slack - kMoment);
  See(false, now_ + kMoment);
  EXPECT_THAT(Judges(), IsEmpty());
}

TEST_P(WindowsTest, AnAnnouncementDoesNotCoverAWindowBeyondTheSlackOfItsEnd) {
  Damage(start_, start_ + kMoment);
  See(true, start_ + kMoment + limits().slack);
  See(false, now_ + kMoment);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, AnAnnouncementOfAnotherFamilyCoversNothing) {
  See(true, start_);
  const Announcement other(windows_, GuardsOf(testing::IpFamily::kIpv6));
  See(false, broken_);
  EXPECT_THAT(Judges(), ElementsAre("repair"));
}

TEST_P(WindowsTest, WhatIsExcusedIsTheWindowTheAnnouncementAndTheSlackAroundThem) {
  Break();
  See(true, broken_ + absl::Seconds(1));
  // From the last read that saw all rules, to the first that saw them again.
  const absl::Time from = start_ - limits().slack;
  const absl::Time to = broken_ + absl::Seconds(1) + limits().slack;
  EXPECT_EQ(windows_.Excused(kMasq4, {from - kMoment, from}), absl::ZeroDuration());
  EXPECT_EQ(windows_.Excused(kMasq4, {from, from + kMoment}), kMoment);
  EXPECT_EQ(windows_.Excused(kMasq4, {to - kMoment, to}), kMoment);
  EXPECT_EQ(windows_.Excused(kMasq4, {to, to + kMoment}), absl::ZeroDuration());
}

TEST_P(WindowsTest, AnAnnouncementExcusesUntilAReadThatBeganAfterIt) {
  See(true, start_);
  Damage(start_ + absl::Seconds(1), start_ + absl::Seconds(2));
  const Span later = {start_ + absl::Minutes(1), start_ + absl::Minutes(1) + kMoment};
  EXPECT_EQ(windows_.Excused(kMasq4, later), kMoment);
  See(true, start_ + absl::Seconds(3));
  EXPECT_EQ(windows_.Excused(kMasq4, later), absl::ZeroDuration());
}

INSTANTIATE_TEST_SUITE_P(Limits, WindowsTest, ::testing::ValuesIn(kBothLimits),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kipt::soak
