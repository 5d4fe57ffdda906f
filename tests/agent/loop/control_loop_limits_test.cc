// SPDX-License-Identifier: Apache-2.0
//
// What bounds the agent: its share of the CPU, and its waits. And what must not be lost meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "agent/loop/control_loop.h"
#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

class AsLegacy : public BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  netlink::BackendKind kind() const override { return netlink::BackendKind::kIptablesLegacy; }
};

class AgentCpuTest : public AgentTest {
 protected:
  // Each check costs `cost` of CPU, as the agent measures it.
  ControlLoopOptions Costing(absl::Duration cost) {
    ControlLoopOptions options = Options(Mode::kCleanup);
    options.cpu_used = [this, cost] { return used_ += cost; };
    return options;
  }
  void OpenLegacy() {
    door_ = [this] { return std::make_unique<AsLegacy>(&kernel_); };
  }

  absl::Duration used_;
};

TEST_F(AgentCpuTest, OnLegacyAChangeWaitsUntilTheShareOfTheCpuAllowsACheck) {
  OpenLegacy();
  // A minute's share of 5 % is 3 seconds. One check takes 4, so the next waits for 20 seconds.
  StartWith(Costing(absl::Seconds(4)));
  // The repair at the start is re-checked once.
  ASSERT_TRUE(TurnUntilRounds(2));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  TurnFor(absl::Milliseconds(100));
  EXPECT_THAT(rounds_, SizeIs(2));
}

TEST_F(AgentCpuTest, AReloadKeepsTheShareOfLegacy) {
  OpenLegacy();
  ASSERT_TRUE(StartedWith(Costing(absl::Seconds(4)), 2));
  agent_->SetDesired(Costing(absl::Seconds(4)));
  ASSERT_TRUE(TurnUntilRounds(3));
  kernel_.Touch();
  TurnFor(absl::Milliseconds(100));
  EXPECT_THAT(rounds_, SizeIs(3));
}

TEST_F(AgentCpuTest, OnNftAChangeIsCheckedAtOnceWhateverChecksCost) {
  ASSERT_TRUE(StartedWith(Costing(absl::Seconds(4))));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
}

// Takes this much of the calling thread's CPU time, and a bit more.
constexpr absl::Duration kWork = absl::Milliseconds(20);
void Work() {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  };
  const absl::Duration end = used() + kWork + absl::Milliseconds(1);
  while (used() < end) {
  }
}

TEST(CpuMeterTest, CountsThisThreadAndProgramsThatEndMeanwhileButNotWhatTheyDidBefore) {
  const auto used = CpuMeter();
  for (const bool before : {false, true}) {
    absl::Duration start = used();
    Work();
    EXPECT_GE(used() - start, kWork);
    start = used();
    const pid_t child = fork();
    if (child == 0) {
      Work();
      _exit(0);
    }
    siginfo_t ended{};
    if (before) {
      ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
      start = used();
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(used() - start < kWork, before);
  }
}

TEST_F(AgentCpuTest, OnLegacyARepairIsRecheckedOnceOnly) {
  OpenLegacy();
  ASSERT_TRUE(Started(Mode::kCleanup, 2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kRetry);
  EXPECT_EQ(agent_->state().watching, "users of xtables.lock");
  TurnFor(absl::Milliseconds(100));
  EXPECT_THAT(rounds_, SizeIs(2));
}

TEST_F(AgentTest, AFamilyThatWasPutInPlaceByAnotherDoesNotWaitWhenItIsDamaged) {
  Refuse({.family = Family::kIPv6});
  Start(Mode::kCleanup);
  // Waits of 100 and 200 ms are over, and one of 400 ms has begun.
  ASSERT_TRUE(TurnUntilRounds(3));
  refusal_.refusing = false;
  Clock clock = SteadyClock();
  ASSERT_TRUE(Reconciler(&kernel_, clock).Sync(Options(Mode::kCleanup).input).FirstError().ok());
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(4));
  ASSERT_TRUE(InPlace());
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT", Family::kIPv6));
  ASSERT_TRUE(TurnUntilRounds(5));
  EXPECT_TRUE(rounds_[4].incident.has_value());
  EXPECT_TRUE(InPlace());
}

TEST_F(AgentTest, TheNativeTableStaysUntilItsReplacementExists) {
  kernel_.PutNativeTable({.table = NativeMartians()});
  Refuse({.family = Family::kIPv4});
  Start(Mode::kCleanup);
  const auto native = [&] { return kernel_.Read({}, &NativeMartians())->native.has_value(); };
  ASSERT_TRUE(TurnUntilRounds(1));
  // IPv4 waits, so these rounds have nothing to do but to remove the table.
  for (size_t rounds = 2; rounds < 5; ++rounds) {
    kernel_.Touch();
    ASSERT_TRUE(TurnUntilRounds(rounds));
    ASSERT_TRUE(native()) << "neighbours reach 127.0.0.1 (CVE-2020-8558)";
  }
  refusal_.refusing = false;
  EXPECT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_FALSE(native()) << "the rule of KUBE-FIREWALL exists";
}

TEST_F(AgentTest, TheNativeTableDoesNotWaitAsItsFamilyDoes) {
  kernel_.LoseXt();
  SupportSource support = NoXt();
  ControlLoopOptions options = Options(Mode::kCleanup);
  options.support = &support;
  ASSERT_TRUE(StartedWith(options));
  kernel_.FailNextApply(absl::DeadlineExceededError("busy"));
  kernel_.RemoveNativeTable(Family::kIPv4, std::string(kNativeTable));
  ASSERT_TRUE(TurnUntilRounds(2));
  ASSERT_FALSE(rounds_[1].report.FirstError().ok());
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_TRUE(PutsNative(rounds_[2].report.applied));
}

// Failed checks are retried with their own pauses; those of a family would add to them.
TEST_F(AgentTest, AfterFailedChecksBothFamiliesAreRepairedByTheFirstThatSucceeds) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  // More than once, because the pauses are random.
  for (int i = 0; i < 4; ++i) {
    const size_t rounds = rounds_.size();
    // Both families together, and each alone.
    for (int read = 0; read < 3; ++read) kernel_.FailNextRead(absl::UnavailableError("not now"));
    kernel_.Clear();
    ASSERT_TRUE(TurnUntilRounds(rounds + 2));
    EXPECT_FALSE(rounds_[rounds].report.status.ok());
    EXPECT_TRUE(InPlace());
  }
}

TEST_F(AgentTest, ARoundThatRunsOutOfMemoryIsDoneLater) {
  int failures = 2;
  const auto fail = [&] {
    if (--failures >= 0) throw std::bad_alloc();
  };
  door_ = [&] {
    fail();
    return std::make_unique<FiltersChanges>(&kernel_, [&](netlink::RulesetChanges&) { fail(); });
  };
  const auto end_rounds = [&](size_t count) {
    for (;;) {
      try {
        return TurnUntilRounds(count);
      } catch (const std::bad_alloc&) {
      }
    }
  };
  Start(Mode::kCleanup);
  ASSERT_TRUE(end_rounds(1));
  EXPECT_EQ(rounds_[0].trigger, Trigger::kStart);
  failures = 2;
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(end_rounds(2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kChange);
  EXPECT_TRUE(rounds_[1].incident.has_value());
}

class AgentStormTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    door_ = [this] {
      return std::make_unique<FiltersChanges>(&kernel_, [this](netlink::RulesetChanges& changes) {
        ++drained_;
        changes.lost += std::exchange(lost_, 0);
      });
    };
    Start(Mode::kCleanup);
    ASSERT_TRUE(TurnUntilRounds(1));
  }
  // Makes changes until the agent has used up its burst of checks and waits.
  void Storm() {
    // Bounded: on a machine that hardly runs the agent never waits.
    size_t rounds = 0;
    for (int i = 0; i < 200 && rounds != rounds_.size(); ++i) {
      rounds = rounds_.size();
      kernel_.Touch();
      for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(loop_->Dispatch().ok());
    }
  }

  int drained_ = 0;
  // Events that the next Drain reports as lost.
  uint64_t lost_ = 0;
};

TEST_F(AgentStormTest, WakesTheAgentOnceForEachCheckAndNotForEachEvent) {
  Storm();
  const int drained = drained_;
  const size_t rounds = rounds_.size();
  for (int i = 0; i < 1000; ++i) {
    kernel_.Touch();
    ASSERT_TRUE(loop_->Dispatch().ok());
  }
  // One Drain for the event, and one for the check.
  EXPECT_LE(drained_ - drained, 2 * static_cast<int>(rounds_.size() - rounds) + 2);
}

TEST_F(AgentStormTest, AWriterDuringTheWaitIsIdentifiedByTheNextCheck) {
  Storm();
  kernel_.ActAs(4'194'306, "culprit");
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(rounds_.back().incident->by.writers, Contains(Field(&Writer::command, "culprit")));
  EXPECT_EQ(rounds_.back().trigger, Trigger::kChange);
}

TEST_F(AgentStormTest, ARoundRecordsItsDurationAndHowLongDamageWasKnown) {
  lost_ = 3;
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(rounds_[1].lost_events, 3U);
  EXPECT_GT(rounds_[1].duration, absl::ZeroDuration());
  ASSERT_TRUE(rounds_[1].incident.has_value());
  EXPECT_GT(rounds_[1].incident->latency, rounds_[1].duration) << "from the event on";
}

TEST_F(AgentStormTest, ABackendThatIsOpenedAnewIsWatchedAnew) {
  for (int read = 0; read < 3; ++read) kernel_.FailNextRead(absl::UnavailableError("broken"));
  kernel_.Touch();
  ASSERT_TRUE(TurnUntil([&] { return rounds_.size() > 2 && InPlace(); }));
  EXPECT_EQ(opened_, 2);
  const size_t rounds = rounds_.size();
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(rounds + 1));
  EXPECT_EQ(rounds_[rounds].trigger, Trigger::kChange);
}

// Each part of a refused transaction is tried alone; all of them share the time that there is.
TEST_F(AgentTest, PartsOfARoundShareTheTimeForRetries) {
  ControlLoopOptions options = Options(Mode::kLegacy);
  options.patience = absl::Milliseconds(400);
  kernel_.FailNextApply(absl::InvalidArgumentError("no"));
  for (int i = 0; i < 1000; ++i) kernel_.FailNextApply(absl::AbortedError("changed in between"));
  StartWith(options);
  const SteadyTime start = SteadyNow();
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_LT(SteadyNow() - start, 2 * options.patience);
}

}  // namespace
}  // namespace kipt::agent
