// SPDX-License-Identifier: Apache-2.0
//
// The agent's loop over the kernel in memory, in real time. What the kernel itself does to it is in
// tests/kernel/.
#include "agent/loop/control_loop.h"

#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

TEST_F(AgentTest, PutsEverythingInPlaceWhenTheLoopFirstTurnsAndThenRests) {
  Start(Mode::kLegacy);
  EXPECT_EQ(kernel_.apply_count(), 0);
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_EQ(rounds_[0].trigger, Trigger::kStart);
  EXPECT_FALSE(rounds_[0].incident.has_value()) << "what never existed was not damaged";
  EXPECT_THAT(rounds_[0].changed_families, SizeIs(2));
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(agent_->state().iptables_mode, "nft");
  EXPECT_EQ(agent_->state().watching, "kernel events");
  TurnFor(absl::Milliseconds(300));
  EXPECT_THAT(rounds_, SizeIs(1)) << "our own commit is no reason to check";
}

TEST_F(AgentTest, AnotherModeIsPutInPlaceAtOnceAndIsNoIncident) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  agent_->SetDesired(Options(Mode::kLegacy));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kConfig);
  EXPECT_FALSE(rounds_[1].incident.has_value());
  EXPECT_NE(kernel_.state().Find(Nat("KUBE-MARK-DROP")), nullptr);
  EXPECT_EQ(agent_->state().mode, Mode::kLegacy);
}

TEST_F(AgentTest, WhatOpensAndCannotBeReadIsTriedLessAndLessOften) {
  for (int i = 0; i < 100; ++i) kernel_.FailNextRead(absl::PermissionDeniedError("no"));
  Start(Mode::kLegacy);
  TurnFor(absl::Seconds(1));
  EXPECT_GE(opened_, 2) << "each time anew";
  EXPECT_LE(rounds_.size(), 5U) << "after 0.1, 0.2, 0.4 and 0.8 s";
}

TEST_F(AgentTest, TheTimerFindsUnreportedDamage) {
  sync_period_ = absl::Milliseconds(100);
  kernel_.FailNextWatch(absl::ResourceExhaustedError("no inotify watches left"));
  ASSERT_TRUE(Started(Mode::kCleanup));
  EXPECT_THAT(agent_->state().watching, HasSubstr("timer only: no inotify watches left"));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kTimer);
  ASSERT_TRUE(rounds_[1].incident.has_value());
  EXPECT_THAT(rounds_[1].incident->by.writers, IsEmpty());
  EXPECT_EQ(agent_->state().watching, "kernel events") << "tried again with every check";
}

TEST_F(AgentTest, AMonitorThatFailsIsMadeAnewAndNothingIsMissed) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  kernel_.FailNextDrain(absl::InternalError("broken"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_TRUE(rounds_[1].incident.has_value());
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_EQ(rounds_[2].trigger, Trigger::kChange);
  EXPECT_EQ(agent_->state().watching, "kernel events, anew after a failure: broken");
}

TEST_F(AgentTest, AMonitorThatFailsDuringACheckIsMadeAnewWithinASecond) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  kernel_.FailNextDrain(absl::InternalError("broken"));
  kernel_.FailNextDrain(absl::InternalError("broken again"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(agent_->state().watching, "timer only: broken again");
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntilRounds(3)) << "long before the timer";
  EXPECT_TRUE(rounds_[2].incident.has_value());
  EXPECT_EQ(agent_->state().watching, "kernel events, anew after a failure: broken again");
}

TEST_F(AgentTest, ATableThatIsRefusedWaitsLongerAndLongerWhileTheOthersAreRepairedAtOnce) {
  Refuse({.family = Family::kIPv4, .table = netlink::Table::kNat});
  Start(Mode::kLegacy);
  ASSERT_TRUE(TurnUntil([&] { return rounds_.size() >= 3; }));
  TurnFor(absl::Seconds(1));  // the pauses of the table have grown by now
  const int refused_before = refusal_.count;
  for (int i = 0; i < 5; ++i) {
    DeleteJump(Filter("INPUT"));
    const size_t rounds = rounds_.size();
    ASSERT_TRUE(TurnUntilRounds(rounds + 1));
    ASSERT_TRUE(rounds_.back().incident.has_value());
    EXPECT_THAT(rounds_.back().incident->damage, SizeIs(1));
    EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kFailed);
    EXPECT_THAT(agent_->state().families[0].reason, HasSubstr("no such kernel module"));
  }
  EXPECT_LE(refusal_.count - refused_before, 6) << "two attempts of three transactions";
  refusal_.refusing = false;
  const uint64_t incidents = agent_->state().incidents;
  EXPECT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_EQ(agent_->state().incidents, incidents) << "what could not be made was not damaged";
}

TEST_F(AgentTest, InObserveModeDamageIsNotRepaired) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  // The martian rule as an old iptables leaves it: with its comment, without its matches.
  kernel_.AppendRule(Filter("KUBE-FIREWALL"), BareDrop("block incoming localnet connections"));
  ControlLoopOptions observing = Retiring(Mode::kCleanup);
  observing.observe = true;
  agent_->SetDesired(observing);
  ASSERT_TRUE(TurnUntilRounds(2));
  const AgentState state = agent_->state();
  ASSERT_THAT(state.findings, SizeIs(1));
  EXPECT_EQ(state.findings[0].condition, Condition::kDamagedRule);
  EXPECT_FALSE(state.findings[0].repaired);
  EXPECT_FALSE(IsReady(state)) << "a rule drops everything";
}

}  // namespace
}  // namespace kipt::agent
