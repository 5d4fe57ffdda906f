// SPDX-License-Identifier: Apache-2.0
//
// The agent's loop over the kernel in memory, in real time. What the kernel itself does to it is in
// tests/kernel/.
#include "agent/loop/agent.h"

#include <sys/syscall.h>

#include <cerrno>
#include <ctime>
#include <vector>

#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/agent_fixture.h"
#include "tests/support/failing_call.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

TEST_F(AgentTest, PutsEverythingInPlaceWhenTheLoopFirstTurnsAndThenRests) {
  Start(Mode::kLegacy);
  EXPECT_EQ(kernel_.apply_count(), 0);
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_EQ(rounds_[0].trigger, Trigger::kStart);
  EXPECT_FALSE(rounds_[0].incident.has_value()) << "nobody damaged what never was";
  EXPECT_THAT(rounds_[0].changed_families, SizeIs(2));
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(agent_->state().iptables_mode, "nft");
  EXPECT_EQ(agent_->state().watching, "kernel events");
  TurnFor(absl::Milliseconds(300));
  EXPECT_THAT(rounds_, SizeIs(1)) << "our own commit is no reason to look";
}

TEST_F(AgentTest, CannotBeMadeWithoutATimer) {
  WithFailingCall(
      {.number = SYS_timerfd_create, .argument = 0, .value = CLOCK_MONOTONIC, .error = EMFILE},
      [&] {
        EXPECT_THAT(
            Agent::Create(*loop_, Options(Mode::kLegacy), nullptr, nullptr).status(),
            StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("cannot make a timer")));
      });
}

TEST_F(AgentTest, DamageIsRepairedAndTold) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  kernel_.AppendRule(Nat("PREROUTING"), JumpTo("CNI-HOSTPORT-DNAT"));
  kernel_.AppendRule(Nat("OUTPUT"), JumpTo("CNI-HOSTPORT-DNAT"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_FALSE(rounds_[1].incident.has_value());
  kernel_.ActAs(4242, "flusher");
  kernel_.Clear();
  ASSERT_TRUE(TurnUntilRounds(3));
  const Round& round = rounds_[2];
  EXPECT_EQ(round.trigger, Trigger::kChange);
  EXPECT_EQ(round.external_changes, 1);
  ASSERT_TRUE(round.incident.has_value());
  EXPECT_THAT(round.incident->by.writers, ElementsAre(Field(&Writer::command, "flusher")));
  EXPECT_THAT(round.incident->lost_jumps,
              ElementsAre(ForeignJump{Nat("OUTPUT"), "CNI-HOSTPORT-DNAT"},
                          ForeignJump{Nat("PREROUTING"), "CNI-HOSTPORT-DNAT"}));
  EXPECT_THAT(round.incident->damage,
              Contains(Field(&DamagedItem::chain, Mangle("KUBE-IPTABLES-HINT"))));
  EXPECT_GT(round.incident->latency, absl::ZeroDuration());
  EXPECT_LE(round.incident->applying, round.incident->latency);
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(agent_->state().incidents, 1);
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

TEST_F(AgentTest, TheTimerFindsWhatNobodyTold) {
  sync_period_ = absl::Milliseconds(100);
  kernel_.FailNextWatch(absl::ResourceExhaustedError("no inotify watches left"));
  ASSERT_TRUE(Started(Mode::kCleanup));
  EXPECT_THAT(agent_->state().watching, HasSubstr("timer only: no inotify watches left"));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kTimer);
  ASSERT_TRUE(rounds_[1].incident.has_value());
  EXPECT_THAT(rounds_[1].incident->by.writers, IsEmpty());
  EXPECT_EQ(agent_->state().watching, "kernel events") << "tried again with every look";
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

// ---- failure as a normal state ----

TEST_F(AgentTest, ABackendThatCannotBeOpenedIsTriedAgainWithPausesAndToldOnce) {
  open_error_ = absl::UnavailableError("this kernel has no nf_tables");
  ASSERT_TRUE(Started(Mode::kCleanup, 3));
  EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kFailed);
  EXPECT_EQ(agent_->state().families[0].reason, "this kernel has no nf_tables");
  EXPECT_THAT(rounds_[0].changed_families, SizeIs(2));
  EXPECT_THAT(rounds_[1].changed_families, IsEmpty());
  EXPECT_EQ(rounds_[1].trigger, Trigger::kRetry);
  open_error_ = absl::OkStatus();
  ASSERT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_FALSE(rounds_.back().incident.has_value());
}

TEST_F(AgentTest, ALookThatFailsOpensTheBackendAnew) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  kernel_.FailNextRead(absl::ResourceExhaustedError("out of memory"));
  kernel_.FailNextRead(absl::ResourceExhaustedError("out of memory"));
  kernel_.FailNextRead(absl::ResourceExhaustedError("out of memory"));
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(agent_->state().families[1].phase, FamilyPhase::kFailed);
  ASSERT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_EQ(opened_, 2);
}

TEST_F(AgentTest, DamageDoneWhileLooksFailIsRepairedOnceTheySucceed) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  for (int i = 0; i < 6; ++i) kernel_.FailNextRead(absl::InternalError("fault"));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(TurnUntil([&] { return rounds_.size() > 2 && InPlace(); }));
  EXPECT_NE(kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT")), nullptr);
}

TEST_F(AgentTest, AFamilyThatIsRefusedWaitsLongerAndLongerWhileTheOtherIsRepairedAtOnce) {
  Refuse({.family = Family::kIPv6});
  Start(Mode::kLegacy);
  ASSERT_TRUE(TurnUntil([&] { return rounds_.size() >= 3; }));
  EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kInPlace);
  EXPECT_EQ(agent_->state().families[1].phase, FamilyPhase::kFailed);
  EXPECT_THAT(agent_->state().families[1].reason, HasSubstr("no such kernel module"));

  TurnFor(absl::Seconds(1));  // the pauses of IPv6 have grown by now
  const int refused_before = refusal_.count;
  for (int i = 0; i < 5; ++i) {
    DeleteJump(Filter("INPUT"));
    const size_t rounds = rounds_.size();
    // A round that IPv6's pause had made due may have begun before.
    ASSERT_TRUE(TurnUntil([&] { return rounds_.size() > rounds && rounds_.back().incident; }));
    EXPECT_LE(rounds_.size(), rounds + 2);
    EXPECT_EQ(agent_->state().families[1].phase, FamilyPhase::kFailed);
  }
  // An attempt that the pause has made due is one transaction of all, and one for each table.
  EXPECT_LE(refusal_.count - refused_before, 5) << "two attempts";
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

// ---- storms, fights, refills ----

TEST_F(AgentTest, AStormCostsAtMostTwentyLooksASecondAndHidesNoDamage) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  const SteadyTime end = SteadyNow() + absl::Seconds(1);
  while (SteadyNow() < end) {
    kernel_.Touch();
    ASSERT_THAT(loop_->Dispatch(), IsOk());
  }
  EXPECT_LE(rounds_.size(), 21);
  EXPECT_GE(rounds_.size(), 10);
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  const SteadyTime damaged = SteadyNow();
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_LT(SteadyNow() - damaged, absl::Milliseconds(200));
}

TEST_F(AgentTest, AFightIsToldOnceDampedAndDoesNotDelayOtherRepairs) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  const netlink::ChainId input = Filter("INPUT");
  int deletions = 0;
  const auto delete_again = [&] {
    const netlink::ObservedChain* chain = kernel_.state().Find(input);
    if (chain != nullptr && !chain->rules.empty()) {
      DeleteJump(input);
      ++deletions;
    }
    return agent_->state().fights.size() == 1 && deletions > 12;
  };
  ASSERT_TRUE(TurnUntil(delete_again));
  EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kFailed);
  EXPECT_EQ(agent_->state().families[1].phase, FamilyPhase::kInPlace);
  EXPECT_THAT(agent_->state().families[0].reason, HasSubstr("OwnershipFight"));
  size_t told = 0;
  for (const Round& round : rounds_) told += round.fights_begun.size();
  EXPECT_EQ(told, 1);
  // The jump is gone and waits; the hint does not.
  TurnFor(absl::Milliseconds(30));
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  const SteadyTime damaged = SteadyNow();
  ASSERT_TRUE(
      TurnUntil([&] { return kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT")) != nullptr; }));
  EXPECT_LT(SteadyNow() - damaged, absl::Milliseconds(150));
}

TEST_F(AgentTest, WhatKubeProxyEmptiesOnEachSyncIsRefilledAndCountedAndNoIncident) {
  kernel_.AddChain(Nat("KUBE-PROXY-CANARY"));
  ASSERT_TRUE(Started(Mode::kLegacy));
  const netlink::ChainId firewall = Filter("KUBE-FIREWALL");
  // As kube-proxy 1.28: empties the chain and puts back its own rule, in one commit.
  const auto sync = [&] {
    const netlink::ObservedChain* chain = kernel_.state().Find(firewall);
    ASSERT_NE(chain, nullptr);
    for (const netlink::ObservedRule& rule : std::vector(chain->rules)) {
      if (rule.rule() != nullptr && *rule.rule() == DropMarked(15)) {
        kernel_.RemoveRule(firewall, rule.handle);
      }
    }
  };
  int refills = 0;
  for (int i = 0; i < 3; ++i) {
    sync();
    const size_t rounds = rounds_.size();
    ASSERT_TRUE(TurnUntil([&] {
      refills = 0;
      for (const Round& round : rounds_) refills += round.refills;
      return refills == i + 1;
    })) << rounds;
  }
  EXPECT_EQ(agent_->state().incidents, 0);
  EXPECT_THAT(agent_->state().fights, IsEmpty());
  EXPECT_TRUE(InPlace());
}

// ---- retirement ----

TEST_F(AgentTest, RetiresWhatIsStaleAfterAReloadAndNotWhenItIsToldToKeepIt) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_FALSE(rounds_[1].retirement.has_value());
  EXPECT_NE(kernel_.state().Find(Nat("KUBE-MARK-MASQ")), nullptr);
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(3));
  ASSERT_TRUE(rounds_[2].retirement.has_value());
  EXPECT_TRUE(rounds_[2].retirement->applied);
  EXPECT_EQ(kernel_.state().Find(Nat("KUBE-MARK-MASQ")), nullptr);
  EXPECT_NE(kernel_.state().Find(Mangle("KUBE-KUBELET-CANARY")), nullptr);
  for (const ExistingItem& standing : agent_->state().stale) {
    EXPECT_THAT(standing.reason, HasSubstr("a running kubelet")) << standing.text;
  }
  EXPECT_THAT(agent_->state().claimed, SizeIs(6));
  TurnFor(absl::Milliseconds(200));
  EXPECT_THAT(rounds_, SizeIs(3)) << "our own commit is no reason to look";
}

TEST_F(AgentTest, LooksAtAllRulesSeldomWhileWhatIsStaleIsClaimed) {
  sync_period_ = absl::Milliseconds(50);
  ASSERT_TRUE(Started(Mode::kLegacy));
  cni_.references = {{"/etc/cni/net.d/a.conflist", "portmap", "KUBE-MARK-MASQ"},
                     {"/etc/cni/net.d/a.conflist", "portmap", "KUBE-MARK-DROP"}};
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(6));
  EXPECT_EQ(cni_read_, 1);
  EXPECT_NE(kernel_.state().Find(Nat("KUBE-MARK-MASQ")), nullptr);
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntil([&] { return cni_read_ == 2; })) << "what is new is looked at at once";
}

TEST_F(AgentTest, RetiresSoonAfterSomebodyWroteIntoTheFirstAttempt) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  kernel_.AfterNextRead([](FakeBackend&) {});  // the look
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.Touch(); });
  const auto stands = [&] { return kernel_.state().Find(Nat("KUBE-MARK-MASQ")) != nullptr; };
  bool stood = false;
  // On a slow machine the next attempt may follow before the loop returns.
  at_round_ = [&] {
    if (rounds_.size() == 2) stood = stands();
  };
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  ASSERT_TRUE(rounds_[1].retirement.has_value());
  EXPECT_TRUE(absl::IsAborted(rounds_[1].retirement->status));
  EXPECT_TRUE(stood);
  ASSERT_TRUE(TurnUntil([&] { return !stands(); }));
}

TEST_F(AgentTest, TellsWhoIsExposedToMartiansUntilARuleStands) {
  Start(Mode::kOff);
  route_localnet_.interfaces = {"all"};
  agent_->SetDesired(Retiring(Mode::kOff));
  ASSERT_TRUE(TurnUntil([&] { return !agent_->state().route_localnet.empty(); }));
  EXPECT_THAT(ExposedBecause(agent_->state()), HasSubstr("route_localnet is 1 for all"));
  EXPECT_FALSE(IsReady(agent_->state()));
  EXPECT_THAT(StatusLine(agent_->state()), HasSubstr("exposed: "));
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().martian_protection; }));
  EXPECT_EQ(ExposedBecause(agent_->state()), "");
  EXPECT_TRUE(IsReady(agent_->state()));
}

class ObservingAgentTest : public AgentTest {
 protected:
  AgentOptions Observing(Mode mode) {
    AgentOptions options = Retiring(mode);
    options.observe = true;
    return options;
  }
  const FamilyState& Ip() { return agent_->state().families[0]; }
};

TEST_F(ObservingAgentTest, PlansEverythingAndWritesNothing) {
  ASSERT_TRUE(StartedWith(Observing(Mode::kLegacy)));
  EXPECT_EQ(kernel_.apply_count(), 0);
  EXPECT_THAT(rounds_[0].report.applied, IsEmpty());
  EXPECT_EQ(Ip().phase, FamilyPhase::kObserved);
  EXPECT_GT(Ip().pending_changes, 5);
  EXPECT_EQ(Ip().pending_changes,
            static_cast<int>(rounds_[0].report.PendingOf(Family::kIPv4).size()));
  EXPECT_TRUE(IsReady(agent_->state())) << "it does what it was told";
  EXPECT_NE(agent_->state().last_success, absl::InfinitePast()) << "it succeeds at observing";
  EXPECT_THAT(StatusLine(agent_->state()), HasSubstr("ip observed: "));
}

TEST_F(ObservingAgentTest, LeavesDamageAndTellsOfIt) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  const int applied = kernel_.apply_count();
  agent_->SetDesired(Observing(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(StatusLine(agent_->state()), "in place, and observed only");
  DeleteJump(Filter("INPUT"));
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_EQ(kernel_.apply_count(), applied);
  EXPECT_EQ(Ip().phase, FamilyPhase::kObserved);
  EXPECT_EQ(Ip().pending_changes, 1);
  EXPECT_THAT(rounds_[2].changed_families, SizeIs(1));
  EXPECT_FALSE(rounds_[2].incident.has_value()) << "an incident is what was repaired";
  EXPECT_THAT(rounds_[2].fights_begun, IsEmpty());
}

TEST_F(ObservingAgentTest, WhatItFindsDamagedIsNotMended) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  // The martian rule as an old iptables leaves it: with its comment, without its matches.
  kernel_.AppendRule(
      Filter("KUBE-FIREWALL"),
      netlink::Rule{.comment = "block incoming localnet connections", .target = netlink::Drop{}});
  agent_->SetDesired(Observing(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  const AgentState state = agent_->state();
  ASSERT_THAT(state.findings, SizeIs(1));
  EXPECT_EQ(state.findings[0].condition, Condition::kDamagedRule);
  EXPECT_FALSE(state.findings[0].repaired);
  EXPECT_FALSE(IsReady(state)) << "a rule that drops everything stands";
}

TEST_F(ObservingAgentTest, RetiresNothing) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  const int applied = kernel_.apply_count();
  agent_->SetDesired(Observing(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_FALSE(rounds_[1].retirement.has_value());
  EXPECT_EQ(kernel_.apply_count(), applied);
}

TEST_F(ObservingAgentTest, WritesAsSoonAsItIsToldTo) {
  ASSERT_TRUE(StartedWith(Observing(Mode::kCleanup)));
  const int opened = opened_;
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(Ip().pending_changes, 0);
  EXPECT_EQ(opened_, opened + 1) << "the backend of an observer may be one that cannot write";
}

}  // namespace
}  // namespace kipt::agent
