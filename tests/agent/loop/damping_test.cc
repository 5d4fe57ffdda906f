// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/damping_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

Change OutputJump() { return Add(Filter("OUTPUT"), JumpTo("KUBE-FIREWALL")); }

// Somebody undoes `plan` again and again, `after` our repair each time. Returns how long each
// repair had to wait after the damage was seen.
std::vector<absl::Duration> Contend(Damping& damping, const Plan& plan, int rounds,
                                    absl::Duration after, SteadyTime& now) {
  std::vector<absl::Duration> waits;
  for (int i = 0; i < rounds; ++i) {
    now += after;
    const SteadyTime seen = now;
    std::vector<Change> allowed = Allow(damping, plan, now);
    if (allowed.empty()) {
      now = damping.next();
      allowed = Allow(damping, plan, now);
    }
    EXPECT_EQ(allowed, plan.diff.changes);
    waits.push_back(now - seen);
    damping.NoteApplied(allowed, now);
  }
  return waits;
}

TEST(DampingTest, DamageNowAndThenIsRepairedAtOnceForEver) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  for (const absl::Duration wait :
       Contend(damping, Wants({InputJump()}), 100, absl::Milliseconds(1100), now)) {
    EXPECT_EQ(wait, absl::ZeroDuration());
  }
  EXPECT_THAT(damping.fights(now), IsEmpty());
}

TEST(DampingTest, TenTimesRunningWithinASecondIsAFightAndTheWaitsDouble) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  // The first of these is the damage that starts it: nothing of ours was undone by it.
  const std::vector<absl::Duration> waits = Contend(damping, plan, 24, absl::Milliseconds(20), now);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(waits[i], absl::ZeroDuration()) << i;
  EXPECT_EQ(waits[10], absl::Milliseconds(100));
  EXPECT_EQ(waits[11], absl::Milliseconds(200));
  EXPECT_EQ(waits[14], absl::Milliseconds(1600));
  EXPECT_EQ(waits[15], kLongestFightWait);
  EXPECT_EQ(waits[23], kLongestFightWait);
  ASSERT_THAT(damping.TakeBegun(), SizeIs(1));
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  EXPECT_EQ(damping.fights(now)[0].chain, Filter("INPUT"));
  EXPECT_EQ(damping.fights(now)[0].rounds, 23);
}

TEST(DampingTest, NineTimesRunningIsNoFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 10, absl::Milliseconds(20), now);
  now += absl::Seconds(2);
  EXPECT_EQ(Allow(damping, plan, now), plan.diff.changes);
  EXPECT_THAT(damping.TakeBegun(), IsEmpty());
}

TEST(DampingTest, AMinuteOfQuietEndsAFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 15, absl::Milliseconds(20), now);
  Allow(damping, Wants({}), now + absl::Seconds(59));
  EXPECT_THAT(damping.fights(now), SizeIs(1));
  now += absl::Seconds(60);
  EXPECT_EQ(Allow(damping, plan, now), plan.diff.changes);
  EXPECT_THAT(damping.fights(now), IsEmpty());
  EXPECT_THAT(damping.TakeEnded(), SizeIs(1));
}

TEST(DampingTest, WhatIsUndoneLaterThanASecondDoesNotFeedAFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 11, absl::Milliseconds(20), now);
  EXPECT_THAT(Contend(damping, plan, 2, absl::Seconds(5), now),
              ElementsAre(absl::Milliseconds(100), absl::Milliseconds(100)));
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  EXPECT_EQ(damping.fights(now)[0].rounds, 10);
  EXPECT_THAT(Contend(damping, plan, 1, absl::Milliseconds(20), now),
              ElementsAre(absl::Milliseconds(200)));
  EXPECT_EQ(damping.fights(now)[0].rounds, 11);
}

TEST(DampingTest, WhatAnotherProcessPutBackHoldsNothingOfItsChainAndEndsTheFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 15, absl::Milliseconds(20), now);
  now += absl::Milliseconds(20);
  ASSERT_THAT(Allow(damping, plan, now), IsEmpty()) << "it waits";
  const Change other = Add(Filter("INPUT"), JumpTo("KUBE-FIREWALL", "other"));
  EXPECT_THAT(Allow(damping, Wants({other}), now), ElementsAre(other));
  EXPECT_THAT(damping.fights(now), SizeIs(1));
  now += absl::Seconds(61);
  Allow(damping, Wants({}), now);
  EXPECT_THAT(damping.fights(now), IsEmpty());
}

TEST(DampingTest, NoFightEndsWhereNoneWas) {
  Damping damping(kSyncPeriod);
  damping.NoteApplied(Wants({InputJump()}).diff.changes, kStart);
  Allow(damping, Wants({}), kStart + absl::Seconds(61));
  EXPECT_THAT(damping.TakeEnded(), IsEmpty());
}

TEST(DampingTest, AFightOverOneChainDelaysNoOther) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  Contend(damping, Wants({InputJump()}), 15, absl::Milliseconds(20), now);
  now += absl::Milliseconds(1);
  EXPECT_THAT(Allow(damping, Wants({InputJump(), OutputJump()}), now), ElementsAre(OutputJump()));
}

TEST(DampingTest, AllOfAChainAndWhatWouldJumpToItIsHeldBackTogether) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({Create(Filter("KUBE-FIREWALL")), DropMark(), InputJump()});
  Contend(damping, plan, 15, absl::Milliseconds(20), now);
  now += absl::Milliseconds(1);
  // The jump by itself was never undone: another plan, in which it is all that is missing.
  const Plan fresh = Wants({Create(Filter("KUBE-FIREWALL")), DropMark(),
                            Add(Filter("OUTPUT"), JumpTo("KUBE-FIREWALL", "other")),
                            Add(Nat("KUBE-MARK-MASQ"), SetBit(14))});
  EXPECT_THAT(Allow(damping, fresh, now), ElementsAre(Add(Nat("KUBE-MARK-MASQ"), SetBit(14))));
}

TEST(DampingTest, WhatSomebodyElsePutsBackIsNotHeldAgainstAnybody) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  damping.NoteApplied(plan.diff.changes, now);
  // Undone once within the second, put back by another agent, undone again much later: each time
  // is the first.
  for (int i = 0; i < 50; ++i) {
    now += absl::Seconds(2);
    EXPECT_EQ(Allow(damping, plan, now), plan.diff.changes);
    now += absl::Milliseconds(10);
    EXPECT_THAT(Allow(damping, Wants({}), now), IsEmpty());
  }
  EXPECT_THAT(damping.fights(now), IsEmpty());
  EXPECT_EQ(damping.next(), SteadyTime::InfiniteFuture());
}

TEST(DampingTest, ExactlyASecondIsSoon) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  Contend(damping, Wants({InputJump()}), 11, absl::Seconds(1), now);
  EXPECT_THAT(damping.fights(now), SizeIs(1));
}

TEST(DampingTest, OneSlowTimeBetweenStartsTheCountAgain) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 10, absl::Milliseconds(20), now);
  Contend(damping, plan, 1, absl::Seconds(2), now);
  Contend(damping, plan, 9, absl::Milliseconds(20), now);
  EXPECT_THAT(damping.fights(now), IsEmpty());
  Contend(damping, plan, 1, absl::Milliseconds(20), now);
  EXPECT_THAT(damping.fights(now), SizeIs(1));
}

TEST(DampingTest, LookingAgainDoesNotEndAWait) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 15, absl::Milliseconds(20), now);
  now += absl::Milliseconds(1);
  EXPECT_THAT(Allow(damping, plan, now), IsEmpty());
  EXPECT_THAT(Allow(damping, plan, now + absl::Milliseconds(1)), IsEmpty());
}

TEST(DampingTest, RemembersWhoFoughtWhereNobodyIsSeenLater) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 10, absl::Milliseconds(20), now);
  now += absl::Milliseconds(20);
  WriterAttribution suspects;
  suspects.NoteCheck(Wants({}));
  const Commits commits = {.first = 1, .last = 1, .writer = {.pid = 17, .command = "rival"}};
  suspects.NoteCommits({&commits, 1}, /*others=*/false);
  Plan undone = plan;
  undone.generation = 1;
  suspects.NoteCheck(undone);
  damping.Allow(plan, now);
  damping.NoteWriters(suspects);
  now = damping.next();
  damping.NoteApplied(damping.Allow(plan, now), now);
  now += absl::Milliseconds(20);
  damping.Allow(plan, now);
  damping.NoteWriters(WriterAttribution());
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  ASSERT_THAT(damping.fights(now)[0].by.writers, SizeIs(1));
  EXPECT_EQ(damping.fights(now)[0].by.writers[0].command, "rival");
}

TEST(DampingTest, AChainThatStandsIsJumpedToWhileItsRulesWait) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  Contend(damping, Wants({DropMark()}), 15, absl::Milliseconds(20), now);
  now += absl::Milliseconds(1);
  EXPECT_THAT(Allow(damping, Wants({DropMark(), InputJump()}), now), ElementsAre(InputJump()));
}

// A flush of everything may be invisible once nothing is left to flush: silence proves nothing.
TEST(DampingTest, WhatIsMissingNeverWaitsLongerThanTwoSecondsHoweverLongTheFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const std::vector<absl::Duration> waits =
      Contend(damping, Wants({InputJump()}), 100, absl::Milliseconds(20), now);
  EXPECT_EQ(waits[14], absl::Milliseconds(1600));
  for (size_t i = 15; i < waits.size(); ++i) EXPECT_EQ(waits[i], absl::Seconds(2)) << i;
}

TEST(DampingTest, WhatAFightIsOverIsMissingUntilItsRepairHasLastedASecond) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 11, absl::Milliseconds(20), now);
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  EXPECT_TRUE(damping.fights(now)[0].missing) << "repaired, and likely to be undone again";
  EXPECT_EQ(damping.next(), now + absl::Seconds(1)) << "when that is known";
  Allow(damping, Wants({}), now + absl::Milliseconds(999));
  EXPECT_TRUE(damping.fights(now)[0].missing);
  EXPECT_EQ(damping.next(), now + absl::Seconds(1));
  now += absl::Seconds(1);
  Allow(damping, Wants({}), now);
  EXPECT_FALSE(damping.fights(now)[0].missing);
  EXPECT_EQ(damping.next(), SteadyTime::InfiniteFuture());
  now += absl::Seconds(1);
  Allow(damping, plan, now);
  EXPECT_TRUE(damping.fights(now)[0].missing) << "undone later than within a second, and held back";
}

// Another program adds a copy of our rule again and again: the rule itself is never missing.
TEST(DampingTest, AFightOverWhatIsDeletedLeavesNothingMissing) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Change deleted = {
      netlink::DeleteRule{
          .chain = Filter("INPUT"), .handle = 7, .number = 2, .rule = JumpTo("KUBE-FIREWALL")},
      "duplicate"};
  Contend(damping, Wants({deleted}), 12, absl::Milliseconds(20), now);
  now += absl::Milliseconds(20);
  EXPECT_THAT(Allow(damping, Wants({deleted}), now), IsEmpty());
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  EXPECT_FALSE(damping.fights(now)[0].missing);
}

// Families are read one by one where they cannot be read together. What one of them shows says
// nothing about the other: a repair must not wait anew with each of its checks.
TEST(DampingTest, ACheckOfOneFamilyLeavesTheWaitsOfTheOther) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Plan plan = Wants({InputJump()});
  Contend(damping, plan, 11, absl::Milliseconds(20), now);
  now += absl::Milliseconds(20);
  ASSERT_THAT(Allow(damping, plan, now), IsEmpty());
  const SteadyTime due = damping.next();
  Plan other = Wants({});
  other.families = {Family::kIPv6};
  for (int i = 0; i < 5; ++i) {
    now += absl::Milliseconds(10);
    Allow(damping, other, now);
    EXPECT_EQ(damping.next(), due);
    EXPECT_THAT(Allow(damping, plan, now), IsEmpty());
    EXPECT_EQ(damping.next(), due);
  }
  EXPECT_THAT(Allow(damping, plan, due), ElementsAre(InputJump()));
}

TEST(DampingTest, AShorterSyncPeriodBoundsTheWaitsToo) {
  Damping damping(absl::Seconds(1));
  SteadyTime now = kStart;
  const std::vector<absl::Duration> waits =
      Contend(damping, Wants({InputJump()}), 30, absl::Milliseconds(20), now);
  EXPECT_EQ(waits.back(), absl::Seconds(1));
}

// The same rule is missing, whoever inserts and deletes rules above its place.
TEST(DampingTest, AFightIsTheSameFightWhereverTheRuleIsToBeInserted) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 15; ++i) {
    Change change = InputJump();
    auto& add = std::get<netlink::AddRule>(change.operation);
    add.before = static_cast<netlink::RuleHandle>(100 + i);
    add.number = 1 + i;
    waits.push_back(Contend(damping, Wants({change}), 1, absl::Milliseconds(20), now).front());
  }
  EXPECT_EQ(waits[10], absl::Milliseconds(100));
  EXPECT_EQ(waits[14], absl::Milliseconds(1600));
  ASSERT_THAT(damping.fights(now), SizeIs(1));
  EXPECT_EQ(damping.fights(now)[0].item, "-A INPUT -j KUBE-FIREWALL");
}

// Another agent adds the second copy that we delete: the copy is in dispute, the rule is not.
TEST(DampingTest, WhatIsAddedAndWhatIsDeletedAreTwoItems) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const Change added = InputJump();
  const Change deleted = {
      netlink::DeleteRule{
          .chain = Filter("INPUT"), .handle = 7, .number = 2, .rule = JumpTo("KUBE-FIREWALL")},
      "duplicate"};
  Contend(damping, Wants({deleted}), 10, absl::Milliseconds(20), now);
  Contend(damping, Wants({added}), 1, absl::Milliseconds(20), now);
  EXPECT_THAT(damping.fights(now), IsEmpty()) << "each was undone less than ten times";
}

TEST(DampingTest, RemembersABoundedNumberOfRepairs) {
  const auto numbered = [](int number) {
    return Add(Filter("INPUT"), JumpTo("KUBE-FIREWALL", std::to_string(number)));
  };
  // With `before` others known, whether a fight over one more is seen.
  const auto is_seen = [&](int before) {
    Damping damping(kSyncPeriod);
    std::vector<Change> others;
    for (int i = 0; i < before; ++i) others.push_back(numbered(i));
    SteadyTime now = kStart;
    damping.NoteApplied(others, now);
    Contend(damping, Wants({numbered(before)}), 12, absl::Milliseconds(20), now);
    return !damping.fights(now).empty();
  };
  EXPECT_TRUE(is_seen(255));
  EXPECT_FALSE(is_seen(256));
  // What is known already is followed further.
  Damping damping(kSyncPeriod);
  std::vector<Change> known;
  for (int i = 0; i < 256; ++i) known.push_back(numbered(i));
  SteadyTime now = kStart;
  damping.NoteApplied(known, now);
  Contend(damping, Wants({numbered(0)}), 12, absl::Milliseconds(20), now);
  EXPECT_THAT(damping.fights(now), SizeIs(1));
}

// ---- refills ----

Plan WipedByKubeProxy() {
  Plan plan = Wants({DropMark()});
  plan.claimed_by_kube_proxy = {Family::kIPv4};
  return plan;
}

// And kube-proxy has not been back yet.
Plan FlushedBySomebody() {
  Plan plan = WipedByKubeProxy();
  plan.diff.changes.push_back(Add(Filter("KUBE-FIREWALL"), DropMartians(0)));
  return plan;
}

TEST(DampingTest, ARefillIsDoneAtOnceButOnlyOnceASecondAndIsNoFight) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  const std::vector<absl::Duration> waits =
      Contend(damping, WipedByKubeProxy(), 50, absl::Milliseconds(200), now);
  EXPECT_EQ(waits[0], absl::ZeroDuration());
  for (size_t i = 1; i < waits.size(); ++i) EXPECT_EQ(waits[i], absl::Milliseconds(800)) << i;
  EXPECT_THAT(damping.TakeBegun(), IsEmpty());
}

TEST(DampingTest, ARefillThatIsSecondsApartDoesNotWait) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  for (const absl::Duration wait :
       Contend(damping, WipedByKubeProxy(), 20, absl::Seconds(2), now)) {
    EXPECT_EQ(wait, absl::ZeroDuration());
  }
}

TEST(DampingTest, OnlyWhatKubeProxyDoesNotKeepItselfIsARefill) {
  const Plan wiped = WipedByKubeProxy();
  EXPECT_TRUE(IsRefill(DropMark(), wiped));
  EXPECT_FALSE(IsRefill(DropMark(), Wants({DropMark()}))) << "kube-proxy does not live here";
  EXPECT_FALSE(IsRefill(Add(Filter("KUBE-FIREWALL"), DropMartians(0)), wiped)) << "its own rule";
  EXPECT_FALSE(IsRefill(Add(Filter("KUBE-FIREWALL", Family::kIPv6), DropMarked(15)), wiped));
  EXPECT_FALSE(IsRefill(InputJump(), wiped));
  EXPECT_FALSE(IsRefill(Add(Nat("KUBE-MARK-DROP"), SetBit(15)), wiped)) << "of another chain";
  const netlink::DeleteRule duplicate = {
      .chain = Filter("KUBE-FIREWALL"), .handle = 7, .rule = DropMarked(15)};
  EXPECT_FALSE(IsRefill({duplicate, "duplicate"}, wiped));
  Plan gone = wiped;
  gone.diff.changes.insert(gone.diff.changes.begin(), Create(Filter("KUBE-FIREWALL")));
  EXPECT_FALSE(IsRefill(DropMark(), gone)) << "kube-proxy empties the chain, it does not delete it";
  EXPECT_FALSE(IsRefill(DropMark(), FlushedBySomebody())) << "kube-proxy puts back its own rule";
  Plan elsewhere = wiped;
  elsewhere.diff.changes.push_back(Add(Nat("KUBE-MARK-MASQ"), SetBit(14)));
  elsewhere.diff.changes.push_back(Add(Filter("INPUT"), DropMartians(0)));
  EXPECT_TRUE(IsRefill(DropMark(), elsewhere)) << "what is missing elsewhere says nothing";
}

// The martian rule of the same chain must not wait for a drop-mark rule that was just refilled.
TEST(DampingTest, NothingWaitsWhereSomebodyElseFlushesTheChainBehindARefill) {
  Damping damping(kSyncPeriod);
  const Plan wiped = WipedByKubeProxy();
  SteadyTime now = kStart;
  damping.NoteApplied(damping.Allow(wiped, now), now);
  now += absl::Milliseconds(300);
  EXPECT_THAT(damping.Allow(FlushedBySomebody(), now), SizeIs(2));
}

TEST(DampingTest, NothingWaitsWhereSomebodyElseFlushesTheChainWhileARefillWaits) {
  Damping damping(kSyncPeriod);
  const Plan wiped = WipedByKubeProxy();
  SteadyTime now = kStart;
  damping.NoteApplied(damping.Allow(wiped, now), now);
  now += absl::Milliseconds(300);
  EXPECT_THAT(damping.Allow(wiped, now), IsEmpty());
  now += absl::Milliseconds(100);
  EXPECT_THAT(damping.Allow(FlushedBySomebody(), now), SizeIs(2));
}

}  // namespace
}  // namespace kipt::agent
