// SPDX-License-Identifier: Apache-2.0
//
// The plan, the repetitions and the tally: a table that is not whole, or in which a fault was not
// reached, is red.
#include "tests/faults/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/faults/plan.h"
#include "tests/faults/report.h"
#include "tests/faults/tally.h"
#include "tests/support/private_run.h"
#include "tests/support/scratch_directory.h"

namespace kipt::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---- the plan

TEST(FaultListTest, HasAFaultForEveryPointAndEveryKind) {
  for (uint32_t point = 0; point < kPointCount; ++point) {
    EXPECT_TRUE(std::any_of(kFaults, kFaults + kFaultCount, [&](const FaultRow& row) {
      return static_cast<uint32_t>(row.point) == point;
    })) << PointName(static_cast<Point>(point));
    EXPECT_TRUE(Uses(Subject::kDaemon, static_cast<Point>(point)) ||
                Uses(Subject::kSync, static_cast<Point>(point)));
  }
  for (uint32_t kind = 0; kind < static_cast<uint32_t>(Kind::kKinds); ++kind) {
    EXPECT_TRUE(
        std::any_of(kFaults, kFaults + kFaultCount,
                    [&](const FaultRow& row) { return static_cast<uint32_t>(row.kind) == kind; }))
        << "kind " << kind;
  }
}

Baseline CountedTimes(uint32_t polls) {
  Baseline baseline;
  baseline.occurrences[static_cast<size_t>(Point::kPoll)] = polls;
  return baseline;
}

TEST(LeastTest, IsWhatEveryCountingRunReached) {
  const Baseline least = Least({CountedTimes(4), CountedTimes(2), CountedTimes(3)});
  EXPECT_EQ(least.problem, "");
  EXPECT_EQ(least.occurrences[static_cast<size_t>(Point::kPoll)], 2U);
}

TEST(LeastTest, FailsWhereOneCountingRunFailed) {
  Baseline failed;
  failed.problem = "not ready";
  EXPECT_EQ(Least({CountedTimes(4), failed}).problem, "not ready");
}

TEST(LeastTest, FailsWhereTwoCountingRunsEndDifferently) {
  Baseline other;
  other.desired.parts["ip filter"] = "-A INPUT -j KUBE-FIREWALL";
  EXPECT_THAT(Least({CountedTimes(1), other}).problem, HasSubstr("end differently"));
}

// ---- runs and their tally

// A place where each of `count` polls is followed by a verdict that `attempt` gives.
Place PlaceWith(uint32_t count, std::function<Verdict(uint32_t nth)> attempt) {
  return {.name = "place",
          .measure = [count] { return CountedTimes(count); },
          .attempt = [attempt = std::move(attempt)](const Baseline&, const FaultRow&,
                                                    uint32_t nth) { return attempt(nth); }};
}

bool IsInterruptedPoll(const FaultRow& row) {
  return row.point == Point::kPoll && row.kind == Kind::kErrno && row.number == EINTR;
}

void Try(const Place& place, Tally& tally, absl::Time end = absl::InfiniteFuture()) {
  TryFaults({place}, IsInterruptedPoll, {.waiting_threads = 1, .working_threads = 2, .end = end},
            tally);
}

constexpr Verdict Survived() { return {.end = End::kInPlace}; }
Verdict Late() { return {.end = End::kFailed, .text = "late", .timing = true}; }

TEST(RunsTest, AFaultThatIsNeverReachedIsRed) {
  std::atomic<int> attempts = 0;
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(1,
                [&](uint32_t) {
                  ++attempts;
                  return Verdict{.end = End::kNotReached};
                }),
      tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), ElementsAre(HasSubstr("not reached")));
  EXPECT_EQ(tally.Total().failed(), 1U);
  // All attempts next to others, then all again alone.
  EXPECT_EQ(attempts, 2 * kAttempts);
}

TEST(RunsTest, AFaultThatIsReachedInALaterAttemptIsCounted) {
  std::atomic<int> attempts = 0;
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(1,
                [&](uint32_t) {
                  return ++attempts < kAttempts ? Verdict{.end = End::kNotReached} : Survived();
                }),
      tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), IsEmpty());
  EXPECT_EQ(tally.Total().late, 1U);
}

TEST(RunsTest, AFailureByTimingIsRepeatedAndBothVerdictsAreKept) {
  std::atomic<int> attempts = 0;
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(1, [&](uint32_t) { return ++attempts == 1 ? Late() : Survived(); }), tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), IsEmpty());
  EXPECT_EQ(tally.Total().repeated, 1U);
}

TEST(RunsTest, AFailureByTimingThatComesAgainIsRed) {
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(1, [](uint32_t) { return Late(); }), tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), ElementsAre(HasSubstr("late")));
}

TEST(RunsTest, AnyOtherFailureIsNotRepeated) {
  std::atomic<int> attempts = 0;
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(
          1, [&](uint32_t) { return ++attempts == 1 ? Verdict{.text = "crashed"} : Survived(); }),
      tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), ElementsAre(HasSubstr("crashed")));
}

TEST(RunsTest, MoreFailuresByTimingThanOneInAHundredAreNotRepeated) {
  for (const uint32_t late : {3U, 4U}) {
    std::vector<std::atomic<int>> attempts(2 * kRunsForEachRepetition + 1);
    Tally tally(Subject::kDaemon);
    Try(PlaceWith(2 * kRunsForEachRepetition,
                  [&](uint32_t nth) {
                    return nth <= late && ++attempts[nth] == 1 ? Late() : Survived();
                  }),
        tally);
    if (late == 3) {
      EXPECT_THAT(tally.Problems(Scope::kPart), IsEmpty());
    } else {
      EXPECT_THAT(tally.Problems(Scope::kPart), Contains(HasSubstr("none was")));
      EXPECT_EQ(tally.Total().failed(), 4U);
    }
  }
}

TEST(RunsTest, ARunThatWasNotMadeIsRed) {
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(3, [](uint32_t) { return Survived(); }), tally, absl::InfinitePast());
  EXPECT_THAT(tally.Problems(Scope::kPart), ElementsAre(HasSubstr("only 0 of 3 planned")));
}

TEST(RunsTest, NoRunAtAllIsRed) {
  Tally tally(Subject::kDaemon);
  Try(PlaceWith(0, [](uint32_t) { return Survived(); }), tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), ElementsAre(HasSubstr("no run at all")));
}

TEST(RunsTest, APlaceThatCannotBeCountedIsRed) {
  Place place = PlaceWith(1, [](uint32_t) { return Survived(); });
  place.measure = [] {
    Baseline baseline;
    baseline.problem = "not ready";
    return baseline;
  };
  Tally tally(Subject::kDaemon);
  Try(place, tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), Contains("place: not ready"));
}

TEST(RunsTest, AResumedRunMakesOnlyWhatIsMissingAndKeepsTheRest) {
  const PrivateRun private_run;
  const ScratchDirectory directory;
  const std::string file = directory.Path("runs.tsv");
  std::atomic<int> attempts = 0;
  const Place place = PlaceWith(3, [&](uint32_t nth) {
    ++attempts;
    return nth == 2 ? Verdict{.text = "crashed:\n\twith a tab"} : Survived();
  });
  {
    Tally tally(Subject::kDaemon);
    ASSERT_TRUE(tally.KeepIn(file));
    Try(place, tally);
  }
  // A run that was killed left half a line.
  std::ofstream(file, std::ios::app) << "daemon\tplace\tpoll";
  Tally again(Subject::kDaemon);
  ASSERT_TRUE(again.KeepIn(file));
  Try(place, again);
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(again.Total().made, 3U);
  EXPECT_THAT(again.Problems(Scope::kPart), ElementsAre(HasSubstr("crashed:\n\twith a tab")));
  // What is another subject's is not read.
  Tally other(Subject::kSync);
  ASSERT_TRUE(other.KeepIn(file));
  EXPECT_EQ(other.Total().made, 0U);
}

// Every fault that `subject` uses, reached once.
void AddAll(Subject subject, Tally& tally) {
  for (size_t i = 0; i < kFaultCount; ++i) {
    if (!Uses(subject, kFaults[i].point)) continue;
    tally.Add({.place = "place", .row = &kFaults[i], .nth = 1}, Survived());
  }
}

TEST(WholeTableTest, IsRedWhereAFaultWasNeverReached) {
  for (const Subject subject : {Subject::kSync, Subject::kDaemon}) {
    Tally whole(subject);
    AddAll(subject, whole);
    EXPECT_THAT(whole.Problems(Scope::kWhole), IsEmpty());
    for (size_t i = 0; i < kFaultCount; ++i) {
      if (!Uses(subject, kFaults[i].point)) continue;
      Tally tally(subject);
      AddAll(subject, tally);
      tally.Add({.place = "place", .row = &kFaults[i], .nth = 1}, {.end = End::kNotReached});
      EXPECT_THAT(tally.Problems(Scope::kWhole), Contains(HasSubstr("was never reached")));
    }
  }
}

TEST(WholeTableTest, IsRedWhereAnExcludedFaultWasReached) {
  const FaultRow* const timer =
      std::find_if(kFaults, kFaults + kFaultCount,
                   [](const FaultRow& row) { return row.point == Point::kTimer; });
  Tally tally(Subject::kSync);
  AddAll(Subject::kSync, tally);
  tally.Add({.place = "place", .row = timer, .nth = 1}, Survived());
  EXPECT_THAT(tally.Problems(Scope::kWhole), ElementsAre(HasSubstr("timer: EMFILE")));
}

TEST(ReportTest, SaysInItsTitleThatItFailedAndListsTheProblems) {
  Tally tally(Subject::kDaemon);
  AddAll(Subject::kDaemon, tally);
  const Outcome passed = {.parts = {{.tally = tally, .places = {"place"}}},
                          .problems = {},
                          .program = "kube-iptables-agent v1.2.3, commit 0123abc",
                          .taken = absl::Minutes(3)};
  EXPECT_THAT(ReportText(passed), HasSubstr("# Faults: passed"));
  EXPECT_THAT(ReportText(passed), HasSubstr("v1.2.3, commit 0123abc"));
  EXPECT_THAT(ReportText(passed),
              HasSubstr(absl::StrCat("| daemon | place | ", kFaultCount, " | ", kFaultCount, " | ",
                                     kFaultCount, " | 0 | 0 | 0 |")));
  Outcome failed = passed;
  failed.problems = {"place: late\nand its log"};
  EXPECT_THAT(ReportText(failed), HasSubstr("# Faults: failed"));
  EXPECT_THAT(ReportText(failed), HasSubstr("* place: late\n"));
  EXPECT_THAT(ReportText(failed), Not(HasSubstr("and its log")));
}

}  // namespace
}  // namespace kipt::testing
