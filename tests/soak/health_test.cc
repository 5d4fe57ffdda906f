// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/health.h"

#include <csignal>
#include <optional>
#include <vector>

#include "tests/soak/disturbances.h"
#include "tests/soak/judge_test.h"

namespace kipt::soak {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;

// ---- memory, descriptors, threads, children ----

struct GrowthRow {
  const char* name;
  absl::Duration run;
  int64_t Sample::*of;
  // What the median of the last quarter may be above that of the second.
  int64_t may_grow;
};
const GrowthRow kGrowthRows[] = {
    {"MemoryInHalfAnHour", absl::Minutes(30), &Sample::anonymous_kib, 256},
    {"MemoryInFiveMinutes", absl::Minutes(5), &Sample::anonymous_kib, 256},
    {"MemoryInAMinute", absl::Minutes(1), &Sample::anonymous_kib, 1024},
    {"DescriptorsInHalfAnHour", absl::Minutes(30), &Sample::descriptors, 2},
    {"DescriptorsInAMinute", absl::Minutes(1), &Sample::descriptors, 2},
    {"ThreadsInHalfAnHour", absl::Minutes(30), &Sample::threads, 0},
    {"ThreadsInAMinute", absl::Minutes(1), &Sample::threads, 0},
    {"ChildrenInHalfAnHour", absl::Minutes(30), &Sample::children, 1},
    {"ChildrenInAMinute", absl::Minutes(1), &Sample::children, 1},
};

class GrowthTest : public ::testing::TestWithParam<GrowthRow> {
 protected:
  // Judges a run in whose last quarter there is so much more than before.
  static std::vector<std::string> JudgesOf(int64_t more) {
    const absl::Duration run = GetParam().run;
    std::vector<Sample> samples;
    for (absl::Duration at; at <= run; at += absl::Seconds(1)) {
      Sample sample = {
          .at = at, .anonymous_kib = 1700, .descriptors = 20, .threads = 3, .children = 0};
      if (at > run * 0.7) sample.*GetParam().of += more;
      samples.push_back(sample);
    }
    Journal journal(1, "");
    JudgeGrowth("nft", samples, run, journal);
    std::vector<std::string> judges;
    for (const Violation& violation : journal.violations()) judges.push_back(violation.of);
    return judges;
  }
};

TEST_P(GrowthTest, MayGrowByAsMuchAsTheLimitAndByNoMore) {
  EXPECT_THAT(JudgesOf(GetParam().may_grow), IsEmpty());
  EXPECT_THAT(JudgesOf(GetParam().may_grow + 1), ElementsAre("memory"));
}

INSTANTIATE_TEST_SUITE_P(Rows, GrowthTest, ::testing::ValuesIn(kGrowthRows),
                         [](const auto& row) { return row.param.name; });

// ---- zombies ----

TEST(ZombieJudgeTest, AZombieInFiveSamplesRunningIsFoundOnce) {
  ZombieJudge judge;
  for (int sample = 1; sample <= 4; ++sample) EXPECT_THAT(judge.See({{7, 'Z'}}), IsEmpty());
  EXPECT_THAT(judge.See({{7, 'Z'}}), ElementsAre(7));
  EXPECT_THAT(judge.See({{7, 'Z'}}), IsEmpty());
}

TEST(ZombieJudgeTest, ASampleWithoutTheZombieBeginsAnew) {
  ZombieJudge judge;
  for (int sample = 1; sample <= 4; ++sample) judge.See({{7, 'Z'}});
  judge.See({});
  for (int sample = 1; sample <= 4; ++sample) EXPECT_THAT(judge.See({{7, 'Z'}}), IsEmpty());
  EXPECT_THAT(judge.See({{7, 'Z'}}), ElementsAre(7));
}

TEST(ZombieJudgeTest, AChildThatRunsIsNoZombie) {
  ZombieJudge judge;
  for (int sample = 1; sample <= 9; ++sample) EXPECT_THAT(judge.See({{7, 'S'}}), IsEmpty());
}

// ---- endpoints ----

class SilenceTest : public JudgeTest {
 protected:
  SilenceJudge judge_{limits().repair, start_};
};

TEST_P(SilenceTest, EndpointsMayBeSilentAsLongAsTheBoundAndNoLonger) {
  EXPECT_EQ(judge_.See(start_ + limits().repair, false, true), std::nullopt);
  const absl::Duration longer = limits().repair + kMoment;
  EXPECT_THAT(judge_.See(start_ + longer, false, true), Optional(Eq(longer)));
  EXPECT_EQ(judge_.See(start_ + 2 * longer, false, true), std::nullopt) << "reported once";
}

TEST_P(SilenceTest, AnAnswerEndsTheSilence) {
  EXPECT_EQ(judge_.See(start_ + limits().repair, true, true), std::nullopt);
  EXPECT_EQ(judge_.See(start_ + 2 * limits().repair, false, true), std::nullopt);
  EXPECT_TRUE(judge_.See(start_ + 2 * limits().repair + kMoment, false, true).has_value());
}

TEST_P(SilenceTest, ADaemonThatCannotAnswerIsNotSilent) {
  EXPECT_EQ(judge_.See(start_ + 9 * limits().repair, false, false), std::nullopt);
  EXPECT_EQ(judge_.See(start_ + 10 * limits().repair, false, true), std::nullopt);
  EXPECT_TRUE(judge_.See(start_ + 10 * limits().repair + kMoment, false, true).has_value());
}

INSTANTIATE_TEST_SUITE_P(Limits, SilenceTest, ::testing::ValuesIn(kBothLimits),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(MetricsFaultTest, OnlyAllMetricsWithStatus200AreRight) {
  const std::string body = "kube_iptables_agent_syncs_total 1\n";
  EXPECT_EQ(MetricsFault(200, body), "");
  EXPECT_EQ(MetricsFault(500, body), "/metrics: status 500, 34 bytes");
  EXPECT_EQ(MetricsFault(200, ""), "/metrics: status 200, 0 bytes");
}

// ---- the daemon's exit codes and reloads ----

TEST(ExitFaultTest, OnlyAnOrderlyEndIsRightAndDeathBySigkill) {
  EXPECT_EQ(ExitFault(0, SIGTERM), "");
  EXPECT_EQ(ExitFault(1, SIGTERM), "exit code 1 on signal 15");
  EXPECT_EQ(ExitFault(128 + SIGTERM, SIGTERM), "exit code 143 on signal 15");
  EXPECT_EQ(ExitFault(-1, SIGTERM), "exit code -1 on signal 15") << "it did not end";
  EXPECT_EQ(ExitFault(128 + SIGKILL, SIGKILL), "");
  EXPECT_EQ(ExitFault(0, SIGKILL), "exit code 0 on signal 9");
}

TEST(ReloadFaultTest, AValidConfigurationIsTakenAndAnInvalidOneIsNot) {
  EXPECT_EQ(ReloadFault(1, 2, true), "");
  EXPECT_EQ(ReloadFault(1, 1, true), "a valid configuration was not taken");
  EXPECT_EQ(ReloadFault(1, 1, false), "");
  EXPECT_EQ(ReloadFault(1, 2, false), "an invalid configuration was taken");
}

// ---- what a run ends with ----

TEST(JournalTest, EachNamedJudgeMustHaveReportedAViolation) {
  Journal journal(1, "");
  journal.Violate("nft", "repair", "", "");
  EXPECT_TRUE(journal.Violated({"repair"}));
  EXPECT_FALSE(journal.Violated({"repair", "endpoints"}));
  EXPECT_FALSE(journal.Violated({}));
  journal.Violate("nft", "endpoints", "", "");
  EXPECT_TRUE(journal.Violated({"repair", "endpoints"}));
}

}  // namespace
}  // namespace kipt::soak
