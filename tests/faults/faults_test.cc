// SPDX-License-Identifier: Apache-2.0
//
// That the layer injects and that a damaged kernel is noticed; then some of the faults, at every
// occurrence. All of them, all over: label `long`, and tests/faults/run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "tests/faults/daemon_faults.h"
#include "tests/faults/sync_faults.h"
#include "tests/support/private_run.h"
#include "tests/support/scratch_directory.h"

namespace kipt::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Scene kWarm = {IptablesMode::kNft, true, StartState::kWarm};
constexpr Scene kDamaged = {IptablesMode::kNft, true, StartState::kDamaged};
constexpr Scene kLegacyDamaged = {IptablesMode::kLegacy, true, StartState::kDamaged};

// On a thread that may move to other namespaces.
void Apart(const std::function<void()>& work) {
  std::jthread([&] {
    const PrivateRun private_run;
    work();
  }).join();
}

const FaultRow& RowOf(Point point, absl::string_view name) {
  const FaultRow* row = std::find_if(kFaults, kFaults + kFaultCount, [&](const FaultRow& each) {
    return each.point == point && each.name == name;
  });
  EXPECT_NE(row, kFaults + kFaultCount) << "there is no fault " << std::string(name);
  return *row;
}

bool IsOneOf(const FaultRow& row, const std::vector<std::pair<Point, std::string>>& faults) {
  return std::any_of(faults.begin(), faults.end(), [&](const auto& fault) {
    return fault.first == row.point && fault.second == row.name;
  });
}

void ExpectSurvived(const Tally& tally, size_t fewest_runs, Scope scope = Scope::kPart) {
  EXPECT_THAT(tally.Problems(scope), IsEmpty());
  EXPECT_GE(tally.Total().made, fewest_runs) << "too few for the layer to be where it should be";
  ::testing::Test::RecordProperty("runs", static_cast<int>(tally.Total().made));
}

// ---- does it notice?

TEST(FaultLayerTest, AFaultThatIsNeverReachedIsAFailure) {
  Apart([] {
    const Programs programs = BuiltPrograms();
    const Baseline baseline = MeasureSync(kWarm, programs);
    ASSERT_EQ(baseline.problem, "");
    const Verdict verdict =
        SyncWithFault(kWarm, programs, baseline, RowOf(Point::kSend, "ENOBUFS"), 100000);
    EXPECT_EQ(verdict.end, End::kNotReached);
    EXPECT_TRUE(verdict.failed());
  });
}

TEST(FaultLayerTest, WhatIsInjectedIsWhatTheProgramFailsWith) {
  Apart([] {
    const Programs programs = BuiltPrograms();
    const Baseline baseline = MeasureSync(kDamaged, programs);
    ASSERT_EQ(baseline.problem, "");
    const Verdict verdict =
        SyncWithFault(kDamaged, programs, baseline, RowOf(Point::kSocket, "EMFILE"), 1);
    EXPECT_EQ(verdict.end, End::kError) << verdict.text;
    EXPECT_THAT(verdict.text, HasSubstr("Too many open files"));
  });
}

// A script in the agent's place, where nothing of ours exists.
Verdict ColdSyncOf(const std::string& script) {
  Verdict verdict;
  Apart([&] {
    Scene cold = kDamaged;
    cold.state = StartState::kCold;
    const Baseline baseline = MeasureSync(cold, BuiltPrograms());
    ASSERT_EQ(baseline.problem, "");
    const ScratchDirectory directory;
    ASSERT_TRUE(directory.WriteFile("agent", "#!/bin/sh\n" + script, /*executable=*/true));
    Programs impostor = BuiltPrograms();
    impostor.agent = directory.Path("agent");
    verdict = SyncWithFault(cold, impostor, baseline, RowOf(Point::kSend, "ENOBUFS"), 1);
  });
  return verdict;
}

struct ImpostorRow {
  std::string name;
  std::string script;
  std::string text;
};

class SyncJudgeTest : public ::testing::TestWithParam<ImpostorRow> {};

TEST_P(SyncJudgeTest, IsNoticed) {
  const Verdict verdict = ColdSyncOf(GetParam().script);
  EXPECT_EQ(verdict.end, End::kFailed);
  EXPECT_THAT(verdict.text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, SyncJudgeTest,
    ::testing::Values(
        ImpostorRow{"SuccessWithNothingDone", "exit 0", "exit code 0, but not in place"},
        ImpostorRow{"AnErrorInSilence", "exit 1", "no clear error"},
        ImpostorRow{"ALibrarysError",
                    "echo 'Error: basic_filebuf::underflow error reading' >&2; exit 1",
                    "a library's"},
        ImpostorRow{"AnotherExitCode", "echo 'Error: the kernel refused it' >&2; exit 3",
                    "exit code 3"},
        ImpostorRow{"ACrash", "kill -SEGV $$", "crashed, 139"},
        ImpostorRow{"ASanitizersWord", "echo 'AddressSanitizer: heap-use-after-free'; exit 1",
                    "crashed, 1"},
        ImpostorRow{"AnErrorWithHalfOfItDone",
                    "LD_PRELOAD= /usr/sbin/iptables-nft -N HALF-DONE\n"
                    "echo 'Error: the kernel refused the transaction' >&2; exit 1",
                    "neither as before nor as desired"}),
    [](const auto& row) { return row.param.name; });

// ---- what happens to the daemon

const Incident& IncidentNamed(absl::string_view name) {
  const std::vector<Incident>& all = Incidents();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Incident& each) { return each.name == name; });
  EXPECT_NE(found, all.end()) << "there is no incident " << name;
  return *found;
}

struct DaemonRow {
  std::string name;
  // The incident; hint-deleted is part of each.
  std::string (*strike)(const Site& site);
  uint32_t nth;  // of send: EINTR
  End end;
  bool timing;
  std::string text;
};

std::string DeleteHint(const Site& site) { return IncidentNamed("hint-deleted").strike(site); }

std::string DeleteHintAndKill(const Site& site) {
  std::string problem = DeleteHint(site);
  kill(site.daemon, SIGKILL);
  return problem;
}

// The log warns of the damage, and not of the delay.
std::string DeleteHintWhileItIsStopped(const Site& site) {
  kill(site.daemon, SIGSTOP);
  std::string problem = DeleteHint(site);
  if (fork() == 0) {
    sleep(static_cast<unsigned>(absl::ToInt64Seconds(kSilent)) + 1);
    kill(site.daemon, SIGCONT);
    _exit(0);
  }
  return problem;
}

// It reads the kernel so seldom that it may not see how long the rules were missing.
Verdict OnABusyMachine(const std::function<Verdict()>& try_it) {
  Verdict verdict = {.end = End::kInPlace};
  for (int i = 0; i < 5 && verdict.end == End::kInPlace; ++i) verdict = try_it();
  return verdict;
}

// All at once, for they wait.
TEST(DaemonJudgeTest, NoticesAFaultThatIsNeverReachedADaemonThatIsKilledAndOneThatIsLateInSilence) {
  const std::vector<DaemonRow> rows = {
      {"never reached", DeleteHint, 100000, End::kNotReached, false, ""},
      {"killed", DeleteHintAndKill, 1, End::kFailed, false, "the daemon ended with 137"},
      {"late in silence", DeleteHintWhileItIsStopped, 1, End::kFailed, true, "said nothing"}};
  const Programs programs = BuiltPrograms();
  Baseline baseline;
  Apart([&] { baseline = MeasureIncident(IncidentNamed("hint-deleted"), programs); });
  ASSERT_EQ(baseline.problem, "");
  std::vector<Verdict> verdicts(rows.size());
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < rows.size(); ++i) {
    jobs.emplace_back([&, i] {
      Incident incident = IncidentNamed("hint-deleted");
      incident.strike = rows[i].strike;
      verdicts[i] = OnABusyMachine([&] {
        return IncidentWithFault(incident, programs, baseline, RowOf(Point::kSend, "EINTR"),
                                 rows[i].nth);
      });
    });
  }
  DoApart(jobs, jobs.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(verdicts[i].end, rows[i].end) << rows[i].name << ": " << verdicts[i].text;
    EXPECT_EQ(verdicts[i].timing, rows[i].timing) << rows[i].name;
    EXPECT_TRUE(verdicts[i].failed()) << rows[i].name;
    EXPECT_THAT(verdicts[i].text, HasSubstr(rows[i].text)) << rows[i].name;
  }
}

TEST(DaemonJudgeTest, NoticesAnIncidentThatDoesNotReachTheDaemon) {
  Incident nothing = IncidentNamed("hint-deleted");
  nothing.strike = [](const Site&) { return std::string(); };
  Tally tally(Subject::kDaemon);
  TryDaemonFaults(
      {nothing}, BuiltPrograms(), [](const FaultRow&) { return true; }, tally);
  EXPECT_THAT(tally.Problems(Scope::kPart), Contains(HasSubstr("did not reach it")));
}

struct BrokenRow {
  std::string name;
  std::string restore;  // what is done to the rules that stand
};

class BrokenKernelTest : public ::testing::TestWithParam<BrokenRow> {};

TEST_P(BrokenKernelTest, IsNeitherAsBeforeNorAsDesired) {
  Apart([] {
    const Programs programs = BuiltPrograms();
    const Baseline baseline = MeasureSync(kDamaged, programs);
    ASSERT_EQ(baseline.problem, "");
    ASSERT_EQ(Prepare(kWarm, programs), "");
    ASSERT_EQ(Restore(IptablesMode::kNft, IpFamily::kIpv4,
                      "*filter\n-A FORWARD -p tcp -m tcp --dport 9 -j FOREIGN\nCOMMIT\n"),
              "");
    ASSERT_EQ(Difference(ReadKernel(IptablesMode::kNft), baseline.desired), "");
    ASSERT_EQ(Restore(IptablesMode::kNft, IpFamily::kIpv4, GetParam().restore), "");
    const KernelText now = ReadKernel(IptablesMode::kNft);
    EXPECT_NE(HalfDone(now, baseline.before, baseline.desired, Atomicity::kWhole), "");
    EXPECT_EQ(HalfDone(baseline.before, baseline.before, baseline.desired, Atomicity::kWhole), "");
    EXPECT_EQ(HalfDone(baseline.desired, baseline.before, baseline.desired, Atomicity::kWhole), "");
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenKernelTest,
    ::testing::Values(
        BrokenRow{"OneRuleMissing", "*filter\n-D KUBE-FIREWALL 1\nCOMMIT\n"},
        BrokenRow{"AJumpTwice", "*filter\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n"},
        BrokenRow{"AForeignRuleGone", "*filter\n-F FOREIGN\nCOMMIT\n"},
        BrokenRow{"AnotherOrder",
                  "*filter\n-D INPUT -j KUBE-FIREWALL\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n"},
        BrokenRow{"APolicy", "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"},
        BrokenRow{"AChainTooMany", "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"}),
    [](const auto& row) { return row.param.name; });

// ---- some faults, at every occurrence

TEST(SyncFaultsTest, AreSurvivedBySyncOnNftables) {
  const Programs programs = BuiltPrograms();
  Tally tally(Subject::kSync);
  TrySyncFaults(
      {kDamaged}, programs,
      [](const FaultRow& row) {
        return IsOneOf(row, {{Point::kSend, "lost on the way"},
                             {Point::kReceive, "overflow: all lost, ENOBUFS"},
                             {Point::kDatagram, "twice"},
                             {Point::kSocket, "EMFILE"},
                             {Point::kAccess, "EACCES"}});
      },
      tally);
  ExpectSurvived(tally, 100);
}

TEST(SyncFaultsTest, AreSurvivedBySyncOnLegacyIptables) {
  const Programs programs = BuiltPrograms();
  Tally tally(Subject::kSync);
  TrySyncFaults(
      {kLegacyDamaged}, programs,
      [](const FaultRow& row) {
        return IsOneOf(row, {{Point::kProgram, "no process (EAGAIN)"},
                             {Point::kProgram, "dies behind its first table"},
                             {Point::kProgram, "done, but exit code 1"},
                             {Point::kProgram, "exit code 4"},
                             {Point::kProgram, "prints its first table only"},
                             {Point::kFeed, "ENOMEM"},
                             {Point::kThread, "EAGAIN"},
                             {Point::kFlock, "ENOLCK"}});
      },
      tally);
  ExpectSurvived(tally, 40);
}

TEST(DaemonFaultsTest, AreSurvivedByTheDaemon) {
  Tally tally(Subject::kDaemon);
  TryDaemonFaults(
      {IncidentNamed("hint-deleted"), IncidentNamed("lock-held")}, BuiltPrograms(),
      [](const FaultRow& row) {
        return IsOneOf(row, {{Point::kReceive, "overflow: all lost, ENOBUFS"},
                             {Point::kThread, "EAGAIN"},
                             {Point::kProgram, "dies when it is done"}});
      },
      tally);
  ExpectSurvived(tally, 20);
}

TEST(DaemonFaultsTest, AStartThatALostAnswerHeldUpIsExplainedInTheLog) {
  Apart([] {
    const Programs programs = BuiltPrograms();
    const Incident& start = IncidentNamed("agent-started");
    const Baseline baseline = MeasureIncident(start, programs);
    ASSERT_EQ(baseline.problem, "");
    const Verdict verdict = OnABusyMachine([&] {
      return IncidentWithFault(start, programs, baseline, RowOf(Point::kSend, "lost on the way"),
                               1);
    });
    // Late, and explained: JudgeIncident.
    EXPECT_EQ(verdict.end, End::kError) << verdict.text;
  });
}

// What a whole run requires of the faults, for their points: each is reached where control.cc says
// so, and only there.
TEST(PointsTest, AreReachedBySyncAndByTheDaemonAsListed) {
  const Programs programs = BuiltPrograms();
  std::vector<Baseline> counted(4);
  DoApart({[&] { counted[0] = MeasureSync(kDamaged, programs); },
           [&] { counted[1] = MeasureSync(kLegacyDamaged, programs); },
           [&] { counted[2] = MeasureIncident(IncidentNamed("agent-started"), programs); },
           [&] { counted[3] = MeasureIncident(IncidentNamed("lock-held"), programs); }},
          /*threads=*/4);
  for (const Baseline& baseline : counted) ASSERT_EQ(baseline.problem, "");
  for (size_t i = 0; i < kPointCount; ++i) {
    const auto point = static_cast<Point>(i);
    EXPECT_EQ(counted[0].occurrences[i] + counted[1].occurrences[i] > 0,
              Uses(Subject::kSync, point))
        << PointName(point);
    EXPECT_EQ(counted[2].occurrences[i] + counted[3].occurrences[i] > 0,
              Uses(Subject::kDaemon, point))
        << PointName(point);
  }
}

TEST(EveryFaultLongTest, ASyncThatDoesNotEndIsNoticed) {
  const Verdict verdict = ColdSyncOf("exec sleep 600");
  EXPECT_EQ(verdict.end, End::kFailed);
  EXPECT_TRUE(verdict.timing);
  EXPECT_THAT(verdict.text, HasSubstr("still runs after"));
}

TEST(EveryFaultLongTest, IsSurvivedBySync) {
  const Programs programs = BuiltPrograms();
  Tally tally(Subject::kSync);
  TrySyncFaults(
      AllScenes(), programs, [](const FaultRow&) { return true; }, tally);
  ExpectSurvived(tally, 15000, Scope::kWhole);
}

TEST(EveryFaultLongTest, IsSurvivedByTheDaemon) {
  const Programs programs = BuiltPrograms();
  Tally tally(Subject::kDaemon);
  TryDaemonFaults(
      Incidents(), programs, [](const FaultRow&) { return true; }, tally);
  ExpectSurvived(tally, 12000, Scope::kWhole);
}

}  // namespace
}  // namespace kipt::testing
