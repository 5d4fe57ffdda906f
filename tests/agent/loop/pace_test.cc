// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/pace.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/loop/clock.h"

namespace kipt::agent {
namespace {

const SteadyTime kStart = SteadyTime() + absl::Seconds(1000);

Pace NewPace(double cpu_share = 1) {
  return Pace(
      absl::Minutes(1), [] { return 1.0; }, cpu_share);
}

// A pace after its first check, at kStart, which took no time.
Pace Settled(double cpu_share = 1) {
  Pace pace = NewPace(cpu_share);
  pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), false);
  return pace;
}

TEST(PaceTest, TheFirstCheckIsAtOnce) { EXPECT_EQ(NewPace().Next(kStart), kStart); }

TEST(PaceTest, WithoutChangesTheTimerChecks) {
  EXPECT_EQ(Settled().Next(kStart + absl::Seconds(1)), kStart + absl::Minutes(1));
}

TEST(PaceTest, AChangeIsCheckedAtOnceAlsoRightAfterAnotherCheck) {
  Pace pace = Settled();
  for (int i = 1; i <= 8; ++i) {
    const SteadyTime now = kStart + i * absl::Milliseconds(1);
    pace.NoteChange();
    EXPECT_EQ(pace.Next(now), now);
    pace.NoteCheck(now, now, absl::ZeroDuration(), false);
  }
}

TEST(PaceTest, AStormOfChangesGetsAtMostTwentyChecksInAnySecond) {
  Pace pace = Settled();
  std::vector<SteadyTime> checks = {kStart};
  for (SteadyTime now = kStart; now < kStart + absl::Seconds(10); now += absl::Milliseconds(1)) {
    pace.NoteChange();
    if (pace.Next(now) > now) continue;
    pace.NoteCheck(now, now, absl::ZeroDuration(), false);
    checks.push_back(now);
  }
  for (size_t i = 20; i < checks.size(); ++i) {
    EXPECT_GE(checks[i] - checks[i - 20], absl::Seconds(1)) << "check " << i;
  }
  EXPECT_EQ(checks.size(), 109) << "ten at once, and then ten a second";
}

TEST(PaceTest, ChecksTakeTheirShareOfTheCpuInTheLongRun) {
  Pace pace = Settled(0.05);
  absl::Duration used;
  const absl::Duration cost = absl::Milliseconds(500);
  const SteadyTime end = kStart + absl::Hours(1);
  for (SteadyTime now = kStart; now < end; now += absl::Milliseconds(100)) {
    pace.NoteChange();
    if (pace.Next(now) > now) continue;
    pace.NoteCheck(now, now + cost, cost, false);
    used += cost;
  }
  EXPECT_LE(used, 0.05 * absl::Minutes(61) + cost);
  EXPECT_GE(used, 0.05 * absl::Minutes(59));
}

TEST(PaceTest, TheShareOfAMinuteMayBeTakenAtOnce) {
  Pace pace = Settled(0.05);
  pace.NoteCheck(kStart, kStart, absl::Seconds(3), false);
  pace.NoteChange();
  EXPECT_EQ(pace.Next(kStart), kStart);
  pace.NoteCheck(kStart, kStart, absl::Milliseconds(500), false);
  pace.NoteChange();
  EXPECT_NEAR(absl::ToDoubleSeconds(pace.Next(kStart) - kStart), 10, 0.001);
}

TEST(PaceTest, OtherOptionsForgetFailuresAndBoundThePausesAfterNewOnes) {
  Pace pace = NewPace();
  for (int i = 0; i < 10; ++i) pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), true);
  pace.SetOptions(absl::Seconds(1), 1);
  EXPECT_FALSE(pace.failing());
  EXPECT_EQ(pace.Next(kStart), kStart + absl::Seconds(1));
  for (int i = 0; i < 10; ++i) pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), true);
  EXPECT_EQ(pace.Next(kStart), kStart + absl::Seconds(1));
}

TEST(PaceTest, AnotherBackendForgetsNoFailure) {
  Pace pace = NewPace();
  for (int i = 0; i < 2; ++i) pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), true);
  pace.SetCpuShare(0.05);
  EXPECT_EQ(pace.Next(kStart), kStart + absl::Milliseconds(200));
}

TEST(PaceTest, FailuresAreRetriedWithPausesThatDoubleUpToTheTimer) {
  Pace pace = NewPace();
  SteadyTime now = kStart;
  std::vector<absl::Duration> pauses;
  for (int i = 0; i < 12; ++i) {
    pace.NoteCheck(now, now, absl::ZeroDuration(), true);
    pauses.push_back(pace.Next(now) - now);
    now = pace.Next(now);
  }
  EXPECT_EQ(pauses[0], absl::Milliseconds(100));
  EXPECT_EQ(pauses[1], absl::Milliseconds(200));
  EXPECT_EQ(pauses[9], absl::Milliseconds(51200));
  EXPECT_EQ(pauses[11], absl::Minutes(1));
  pace.NoteCheck(now, now, absl::ZeroDuration(), false);
  EXPECT_EQ(pace.Next(now), now + absl::Minutes(1));
}

TEST(PaceTest, RetriesAreSpreadByTheJitter) {
  Backoff early(absl::Minutes(1), [] { return 0.8; });
  Backoff late(absl::Minutes(1), [] { return 1.2; });
  early.NoteFailure(kStart);
  late.NoteFailure(kStart);
  EXPECT_EQ(early.next(), kStart + absl::Milliseconds(80));
  EXPECT_EQ(late.next(), kStart + absl::Milliseconds(120));
}

TEST(PaceTest, WhileChecksFailAChangeIsCheckedOnceASecond) {
  Pace pace = NewPace();
  for (int i = 0; i < 10; ++i) pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), true);
  pace.NoteChange();
  EXPECT_EQ(pace.Next(kStart), kStart + absl::Seconds(1));
}

TEST(PaceTest, WhatWaitsIsCheckedInTimeAndForgottenByTheCheck) {
  Pace pace = Settled();
  pace.NoteWaiting(kStart + absl::Seconds(7));
  pace.NoteWaiting(kStart + absl::Seconds(3));
  EXPECT_TRUE(pace.waiting());
  const SteadyTime due = kStart + absl::Seconds(3);
  EXPECT_EQ(pace.Next(kStart), due);
  pace.NoteCheck(due, due, absl::ZeroDuration(), false);
  EXPECT_FALSE(pace.waiting());
  EXPECT_EQ(pace.Next(due), due + absl::Minutes(1));
}

TEST(PaceTest, OneFailureMayAllowAShorterWaitThanOthers) {
  Backoff backoff(absl::Minutes(1), [] { return 1.0; });
  for (int i = 0; i < 6; ++i) backoff.NoteFailure(kStart, absl::Seconds(2));
  EXPECT_EQ(backoff.next(), kStart + absl::Seconds(2));
  backoff.NoteFailure(kStart);
  EXPECT_EQ(backoff.next(), kStart + absl::Milliseconds(6400)) << "of seven failures";
}

TEST(PaceTest, SomethingUrgentDoesNotWaitForABackoff) {
  Pace pace = NewPace();
  for (int i = 0; i < 10; ++i) pace.NoteCheck(kStart, kStart, absl::ZeroDuration(), true);
  pace.NoteUrgent();
  EXPECT_EQ(pace.Next(kStart), kStart);
}

}  // namespace
}  // namespace kipt::agent
