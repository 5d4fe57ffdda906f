// SPDX-License-Identifier: Apache-2.0
//
// What the agent remembers and reports about itself and about others.
#include <memory>
#include <vector>

#include "agent/loop/control_loop.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

TEST_F(AgentTest, JumpsOfAFamilyThatFailedAreNotCalledLost) {
  kernel_.AppendRule(Nat("PREROUTING", Family::kIPv6), JumpTo("CNI-HOSTPORT-DNAT"));
  ASSERT_TRUE(Started(Mode::kLegacy));
  // Together, then IPv4 alone succeeds and IPv6 does not.
  kernel_.FailNextRead(absl::DeadlineExceededError("busy"));
  kernel_.AfterNextRead(
      [](FakeBackend& kernel) { kernel.FailNextRead(absl::DeadlineExceededError("busy")); });
  kernel_.RemoveChain(Mangle("KUBE-KUBELET-CANARY"));
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(rounds_.back().incident->lost_jumps, IsEmpty());
}

// Others write all the time, and a long chain lacks a rule when it is read meanwhile.
class ReadTornOnly : public BorrowedBackend {
 public:
  ReadTornOnly(netlink::Backend* backend, const bool* busy)
      : BorrowedBackend(backend), busy_(busy) {}
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override {
    if (*busy_ && !queries.empty()) return absl::AbortedError("the ruleset changed");
    return BorrowedBackend::Read(queries, native);
  }
  absl::StatusOr<netlink::Snapshot> ReadTorn(absl::Span<const netlink::ChainQuery> queries,
                                             const netlink::NativeTable* native) override {
    absl::StatusOr<netlink::Snapshot> torn = BorrowedBackend::Read(queries, native);
    if (torn.ok()) torn->chains[Nat("PREROUTING")].rules.clear();
    return torn;
  }

 private:
  const bool* busy_;
};

TEST_F(AgentTest, JumpsThatATornReadLacksAreNotCalledLost) {
  bool busy = false;
  door_ = [&] { return std::make_unique<ReadTornOnly>(&kernel_, &busy); };
  kernel_.AppendRule(Nat("PREROUTING"), JumpTo("CNI-HOSTPORT-DNAT"));
  ASSERT_TRUE(Started(Mode::kLegacy));
  busy = true;
  kernel_.RemoveChain(Mangle("KUBE-KUBELET-CANARY"));
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(rounds_.back().incident->lost_jumps, IsEmpty());
}

TEST_F(AgentTest, AJumpThatIsLostInARoundThatCouldReadNothingIsReportedByTheNext) {
  kernel_.AddChain(Mangle("KUBE-PROXY-CANARY"));
  kernel_.AddChain(Nat("KUBE-SERVICES"));
  const auto jump = kernel_.AppendRule(Nat("PREROUTING"), JumpTo("KUBE-SERVICES"));
  ASSERT_TRUE(Started(Mode::kCleanup));
  for (int read = 0; read < 3; ++read) kernel_.FailNextRead(absl::DeadlineExceededError("busy"));
  kernel_.RemoveRule(Nat("PREROUTING"), jump);
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_FALSE(rounds_[1].report.status.ok());
  ASSERT_TRUE(rounds_[2].lost_proxy_jumps.has_value());
  EXPECT_THAT(rounds_[2].lost_proxy_jumps->jumps, SizeIs(1));
}

TEST_F(AgentTest, WhatOneFamilyGotInARoundThatFailedForTheOtherIsAnIncident) {
  Refuse({.family = Family::kIPv6, .refusing = false});
  ASSERT_TRUE(Started(Mode::kCleanup));
  refusal_.refusing = true;
  // Together; then IPv4 alone, which is repaired.
  kernel_.AfterNextRead([](FakeBackend&) {});
  kernel_.AfterNextRead(
      [](FakeBackend& kernel) { kernel.FailNextRead(absl::DeadlineExceededError("busy")); });
  for (const Family family : netlink::kFamilies) {
    kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT", family));
  }
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_FALSE(rounds_[1].report.status.ok());
  ASSERT_TRUE(rounds_[1].incident.has_value());
  EXPECT_THAT(rounds_[1].incident->damage,
              ElementsAre(Field(&DamagedItem::chain, Mangle("KUBE-IPTABLES-HINT"))));
}

TEST_F(AgentTest, AnOldMarkThatAnotherWriterAddsIsDamage) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  kernel_.AppendRule(Nat("KUBE-MARK-DROP"), SetBit(13));
  ASSERT_TRUE(TurnUntilRounds(2));
  ASSERT_TRUE(rounds_[1].incident.has_value());
  EXPECT_THAT(rounds_[1].incident->damage,
              ElementsAre(Field(&DamagedItem::kind, DamageKind::kRuleUnwanted)));
}

TEST_F(AgentTest, ARoundInWhichAFamilyFailsIsNoSuccess) {
  Refuse({.family = Family::kIPv6});
  const absl::Time start = absl::Now();
  ASSERT_TRUE(Started(Mode::kCleanup));
  EXPECT_EQ(agent_->state().last_success, absl::InfinitePast());
  EXPECT_GE(agent_->state().last_check, start);
  EXPECT_GE(agent_->state().checks, 1);
  refusal_.refusing = false;
  ASSERT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_GE(agent_->state().last_success, start);
}

TEST_F(AgentTest, ARoundThatCouldReadNothingLeavesWhatIsKnown) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  const size_t in_place = agent_->state().in_place.size();
  ControlLoopOptions hasty = Options(Mode::kCleanup);
  hasty.patience = absl::ZeroDuration();
  agent_->SetDesired(std::move(hasty));
  kernel_.FailNextRead(absl::AbortedError("others write"));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_FALSE(rounds_[1].report.FirstError().ok());
  EXPECT_THAT(agent_->state().in_place, SizeIs(in_place));
  EXPECT_TRUE(agent_->state().martian_protection);
}

TEST_F(AgentTest, IsAliveBeforeTheLoopTurnsAndWithEachCheck) {
  const absl::Time before = absl::Now();
  Start(Mode::kCleanup);
  EXPECT_GE(agent_->state().started, before);
  EXPECT_GE(agent_->state().heartbeat, before);
  EXPECT_EQ(agent_->state().emulated_version, featuregates::Version({1, 27}));
  ASSERT_TRUE(TurnUntilRounds(1));
  // A check because of a change. While changes are frequent, the timer never fires.
  const absl::Time changed = absl::Now();
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kChange);
  EXPECT_GE(agent_->state().heartbeat, changed);
}

TEST_F(AgentTest, KnowsWhatIsInPlaceAndWhatIsStale) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  const AgentState before = agent_->state();
  EXPECT_THAT(before.in_place, Contains(Field(&ExistingItem::chain, Mangle("KUBE-IPTABLES-HINT"))));
  EXPECT_THAT(before.stale, Contains(Field(&ExistingItem::chain, Nat("KUBE-MARK-DROP"))));
  EXPECT_TRUE(before.martian_protection);
  // A failed check shows nothing about that.
  for (int i = 0; i < 3; ++i) kernel_.FailNextRead(absl::DeadlineExceededError("busy"));
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_FALSE(rounds_[2].report.status.ok());
  EXPECT_EQ(agent_->state().in_place, before.in_place);
  EXPECT_EQ(agent_->state().stale, before.stale);
  EXPECT_TRUE(agent_->state().martian_protection);
}

TEST_F(AgentTest, LeftoversOfAnotherAreRetiredByTheTimerAndNotWhileItWrites) {
  sync_period_ = absl::Milliseconds(500);
  ASSERT_TRUE(StartedWith(Retiring(Mode::kCleanup)));
  ASSERT_TRUE(Reconciler(&kernel_, SteadyClock()).Sync(Options(Mode::kLegacy).input).status.ok());
  kernel_.Touch();
  const auto stale = [&] { return kernel_.state().Find(Nat("KUBE-MARK-DROP")) != nullptr; };
  at_round_ = [&] {
    EXPECT_EQ(stale(), rounds_.back().trigger != Trigger::kTimer);
    EXPECT_EQ(rounds_.back().retirement.has_value(), rounds_.back().trigger == Trigger::kTimer);
  };
  EXPECT_TRUE(TurnUntil([&] { return !stale(); }));
}

TEST_F(AgentTest, ClaimsAndReferencesStayAsTheyWereKnownWhereASurveyFailsOrIsNotNeeded) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  kernel_.AppendRule(Nat("MINE"), JumpTo("KUBE-MARK-MASQ"));
  ASSERT_TRUE(TurnUntilRounds(2));
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(3));
  const std::vector<Claimed> claimed = agent_->state().claimed;
  ASSERT_FALSE(claimed.empty());
  const auto references = [&] {
    return agent_->state().foreign_references.at(Nat("KUBE-MARK-MASQ"));
  };
  ASSERT_EQ(references(), 1U);
  kernel_.FailNextSurvey(absl::UnavailableError("not now"));
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(4));
  ASSERT_TRUE(rounds_[3].retirement.has_value());
  EXPECT_FALSE(rounds_[3].retirement->status.ok());
  EXPECT_EQ(agent_->state().claimed, claimed);
  agent_->SetDesired(Retiring(Mode::kLegacy));
  ASSERT_TRUE(TurnUntilRounds(5));
  ASSERT_TRUE(rounds_[4].retirement.has_value());
  ASSERT_FALSE(rounds_[4].retirement->surveyed);
  EXPECT_EQ(references(), 1U);
}

TEST_F(AgentTest, WhatTheKernelRefusedToRemoveIsStillStale) {
  ASSERT_TRUE(Started(Mode::kLegacy));
  kernel_.FailNextApply(absl::ResourceExhaustedError("no memory"));
  agent_->SetDesired(Retiring(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  ASSERT_TRUE(rounds_[1].retirement.has_value());
  EXPECT_FALSE(rounds_[1].retirement->applied);
  EXPECT_THAT(agent_->state().stale, Contains(Field(&ExistingItem::chain, Nat("KUBE-MARK-MASQ"))));
}

class AgentInterfacesTest : public AgentTest {
 protected:
  ControlLoopOptions CountingReads() {
    sync_period_ = absl::Milliseconds(300);
    ControlLoopOptions options = Options(Mode::kCleanup);
    options.route_localnet = [this] {
      ++read_;
      return RouteLocalnet();
    };
    return options;
  }

  int read_ = 0;
};

TEST_F(AgentInterfacesTest, InterfacesAreReadAgainByTheTimerAndNotWithEachChange) {
  ASSERT_TRUE(StartedWith(CountingReads()));
  EXPECT_EQ(read_, 1);
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(read_, rounds_[1].trigger == Trigger::kChange ? 1 : 2);
  ASSERT_TRUE(TurnUntil([&] { return rounds_.back().trigger == Trigger::kTimer; }));
  EXPECT_EQ(read_, 2);
}

TEST_F(AgentInterfacesTest, OnABusyNodeTheyAreReadOnceInAPeriodAllTheSame) {
  ASSERT_TRUE(StartedWith(CountingReads()));
  ASSERT_TRUE(TurnUntil([&] {
    kernel_.Touch();
    return read_ == 3;
  }));
  EXPECT_GT(rounds_.size(), 4U);
  for (const Round& round : rounds_) EXPECT_NE(round.trigger, Trigger::kTimer);
}

TEST_F(AgentTest, ABackendIsKeptWhereOthersWereOnlyInTheWay) {
  struct Row {
    absl::Status failure;
    int opened;
  };
  const Row rows[] = {{absl::DeadlineExceededError("busy"), 1},
                      {absl::UnavailableError("gone"), 2}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.failure.ToString());
    opened_ = 0;
    rounds_.clear();
    Start(Mode::kCleanup);
    ASSERT_TRUE(TurnUntilRounds(1));
    for (int i = 0; i < 3; ++i) kernel_.FailNextRead(row.failure);
    kernel_.Touch();
    ASSERT_TRUE(TurnUntil([&] { return rounds_.size() > 2 && InPlace(); }));
    EXPECT_EQ(opened_, row.opened);
    EXPECT_EQ(rounds_[2].trigger, Trigger::kRetry);
  }
}

TEST_F(AgentTest, WhoOnlyObservesOpensAnewWhereNothingCouldBeWatched) {
  kernel_.FailNextWatch(absl::UnavailableError("nf_tables is not loaded"));
  sync_period_ = absl::Milliseconds(20);
  ControlLoopOptions options = Options(Mode::kCleanup);
  options.observe = true;
  ASSERT_TRUE(StartedWith(options, 2));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(agent_->state().watching, "kernel events");
}

using AgentReloadTest = AgentTest;

TEST_F(AgentReloadTest, TheNewSyncPeriodHoldsFromTheReloadOn) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  sync_period_ = absl::Milliseconds(20);
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(4));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kConfig);
  EXPECT_EQ(rounds_[2].trigger, Trigger::kTimer);
  EXPECT_EQ(rounds_[3].trigger, Trigger::kTimer);
  EXPECT_EQ(opened_, 1) << "the backend is as good as before";
}

TEST_F(AgentReloadTest, AFightIsForgottenAndWhatItHeldBackIsRepairedAtOnce) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  ASSERT_TRUE(FightUntilItWaits(Filter("INPUT")));
  const size_t rounds = rounds_.size();
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(rounds + 1));
  EXPECT_EQ(rounds_[rounds].trigger, Trigger::kConfig);
  EXPECT_THAT(rounds_[rounds].report.applied, Not(IsEmpty()));
  EXPECT_THAT(agent_->state().fights, IsEmpty());
  EXPECT_TRUE(InPlace());
}

TEST_F(AgentReloadTest, WhatStillFailsIsReportedAgain) {
  Refuse({.family = Family::kIPv6});
  ASSERT_TRUE(Started(Mode::kCleanup));
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_THAT(rounds_[1].changed_families, ElementsAre(Field(&FamilyState::family, Family::kIPv6)));
}

TEST_F(AgentReloadTest, AFamilyThatWaitedIsTriedAtOnce) {
  Refuse({.family = Family::kIPv6});
  Start(Mode::kCleanup);
  // Waits of 100 and 200 ms are over, and one of 400 ms has begun.
  ASSERT_TRUE(TurnUntilRounds(3));
  refusal_.refusing = false;
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(4));
  EXPECT_EQ(rounds_[3].trigger, Trigger::kConfig);
  EXPECT_TRUE(InPlace());
}

TEST_F(AgentReloadTest, HowToWatchDoesNotChange) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  ControlLoopOptions options = Options(Mode::kCleanup);
  options.watch = netlink::WatchMode::kPoll;
  // Another backend is opened for observing, and is watched anew.
  options.observe = true;
  agent_->SetDesired(options);
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(agent_->state().watching, "kernel events");
}

TEST_F(AgentReloadTest, AFamilyThatIsTurnedOffIsNoLongerReported) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  const absl::Time since = agent_->state().families[0].since;
  ControlLoopOptions options = Options(Mode::kCleanup);
  const Family ipv4[] = {Family::kIPv4};
  options.input = Wanting(Mode::kCleanup, ipv4, {});
  agent_->SetDesired(options);
  ASSERT_THAT(agent_->state().families, SizeIs(1));
  EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kInPlace) << "nothing has changed it";
  EXPECT_EQ(agent_->state().families[0].since, since);
}

}  // namespace
}  // namespace kipt::agent
