// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/damping_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

Change OutputJump() { return Add(Filter("OUTPUT"), JumpTo("KUBE-FIREWALL")); }

class DampingTest : public ::testing::Test {
 protected:
  // Another program undoes `plan` again and again, `after` our repair each time. Returns how long
  // each repair had to wait after the damage was seen.
  std::vector<absl::Duration> Contend(const Plan& plan, int rounds,
                                      absl::Duration after = absl::Milliseconds(20)) {
    std::vector<absl::Duration> waits;
    for (int i = 0; i < rounds; ++i) {
      now_ += after;
      const SteadyTime seen = now_;
      std::vector<Change> allowed = Allow(plan);
      if (allowed.empty()) {
        now_ = damping_.next();
        allowed = Allow(plan);
      }
      EXPECT_EQ(allowed, plan.diff.changes);
      waits.push_back(now_ - seen);
      damping_.NoteApplied(allowed, now_);
    }
    return waits;
  }
  std::vector<Change> Allow(const Plan& plan) { return damping_.Allow(plan, now_); }
  std::vector<Change> AllowAfter(absl::Duration time, const Plan& plan) {
    now_ += time;
    return Allow(plan);
  }
  std::vector<Fight> Fights() { return damping_.fights(now_); }

  Damping damping_{kSyncPeriod};
  SteadyTime now_ = kStart;
  const Plan jump_missing_ = Wants({InputJump()});
};

TEST_F(DampingTest, DamageNowAndThenIsRepairedAtOnceForEver) {
  for (const absl::Duration wait : Contend(jump_missing_, 100, absl::Milliseconds(1100))) {
    EXPECT_EQ(wait, absl::ZeroDuration());
  }
  EXPECT_THAT(Fights(), IsEmpty());
}

TEST_F(DampingTest, TenTimesRunningWithinASecondIsAFightAndTheWaitsDouble) {
  // The first of these is the damage that starts it: nothing of ours was undone by it.
  const std::vector<absl::Duration> waits = Contend(jump_missing_, 24);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(waits[i], absl::ZeroDuration()) << i;
  EXPECT_EQ(waits[10], absl::Milliseconds(100));
  EXPECT_EQ(waits[11], absl::Milliseconds(200));
  EXPECT_EQ(waits[14], absl::Milliseconds(1600));
  EXPECT_EQ(waits[15], kLongestFightWait);
  EXPECT_EQ(waits[23], kLongestFightWait);
  ASSERT_THAT(damping_.TakeBegun(), SizeIs(1));
  ASSERT_THAT(Fights(), SizeIs(1));
  EXPECT_EQ(Fights()[0].chain, Filter("INPUT"));
  EXPECT_EQ(Fights()[0].rounds, 23);
}

TEST_F(DampingTest, AMinuteOfQuietEndsAFight) {
  Contend(jump_missing_, 15);
  damping_.Allow(Wants({}), now_ + absl::Seconds(59));
  EXPECT_THAT(Fights(), SizeIs(1));
  EXPECT_EQ(AllowAfter(absl::Seconds(60), jump_missing_), jump_missing_.diff.changes);
  EXPECT_THAT(Fights(), IsEmpty());
  EXPECT_THAT(damping_.TakeEnded(), SizeIs(1));
}

TEST_F(DampingTest, WhatIsUndoneLaterThanASecondDoesNotFeedAFight) {
  Contend(jump_missing_, 11);
  EXPECT_THAT(Contend(jump_missing_, 2, absl::Seconds(5)),
              ElementsAre(absl::Milliseconds(100), absl::Milliseconds(100)));
  ASSERT_THAT(Fights(), SizeIs(1));
  EXPECT_EQ(Fights()[0].rounds, 10);
  EXPECT_THAT(Contend(jump_missing_, 1), ElementsAre(absl::Milliseconds(200)));
  EXPECT_EQ(Fights()[0].rounds, 11);
}

TEST_F(DampingTest, WhatAnotherProcessPutBackHoldsNothingOfItsChainAndEndsTheFight) {
  Contend(jump_missing_, 15);
  ASSERT_THAT(AllowAfter(absl::Milliseconds(20), jump_missing_), IsEmpty()) << "it waits";
  const Change other = Add(Filter("INPUT"), JumpTo("KUBE-FIREWALL", "other"));
  EXPECT_THAT(Allow(Wants({other})), ElementsAre(other));
  EXPECT_THAT(Fights(), SizeIs(1));
  AllowAfter(absl::Seconds(61), Wants({}));
  EXPECT_THAT(Fights(), IsEmpty());
}

TEST_F(DampingTest, NoFightEndsWhereNoneWas) {
  damping_.NoteApplied(jump_missing_.diff.changes, kStart);
  damping_.Allow(Wants({}), kStart + absl::Seconds(61));
  EXPECT_THAT(damping_.TakeEnded(), IsEmpty());
}

TEST_F(DampingTest, AFightOverOneChainDelaysNoOther) {
  Contend(jump_missing_, 15);
  EXPECT_THAT(AllowAfter(absl::Milliseconds(1), Wants({InputJump(), OutputJump()})),
              ElementsAre(OutputJump()));
}

TEST_F(DampingTest, AllOfAChainAndWhatWouldJumpToItIsHeldBackTogether) {
  const Plan plan = Wants({Create(Filter("KUBE-FIREWALL")), DropMark(), InputJump()});
  Contend(plan, 15);
  now_ += absl::Milliseconds(1);
  // The jump alone was never undone: another plan, in which only it is missing.
  const Plan fresh = Wants({Create(Filter("KUBE-FIREWALL")), DropMark(),
                            Add(Filter("OUTPUT"), JumpTo("KUBE-FIREWALL", "other")),
                            Add(Nat("KUBE-MARK-MASQ"), SetBit(14))});
  EXPECT_THAT(Allow(fresh), ElementsAre(Add(Nat("KUBE-MARK-MASQ"), SetBit(14))));
}

TEST_F(DampingTest, WhatAnotherAgentPutsBackIsNoFight) {
  damping_.NoteApplied(jump_missing_.diff.changes, now_);
  // Undone once within the second, put back by another agent, undone again much later: each time
  // is the first.
  for (int i = 0; i < 50; ++i) {
    now_ += absl::Seconds(2);
    EXPECT_EQ(Allow(jump_missing_), jump_missing_.diff.changes);
    now_ += absl::Milliseconds(10);
    EXPECT_THAT(Allow(Wants({})), IsEmpty());
  }
  EXPECT_THAT(Fights(), IsEmpty());
  EXPECT_EQ(damping_.next(), SteadyTime::InfiniteFuture());
}

TEST_F(DampingTest, ExactlyASecondIsSoon) {
  Contend(jump_missing_, 11, absl::Seconds(1));
  EXPECT_THAT(Fights(), SizeIs(1));
}

TEST_F(DampingTest, OneSlowTimeBetweenStartsTheCountAgain) {
  Contend(jump_missing_, 10);
  Contend(jump_missing_, 1, absl::Seconds(2));
  Contend(jump_missing_, 9);
  EXPECT_THAT(Fights(), IsEmpty());
  Contend(jump_missing_, 1);
  EXPECT_THAT(Fights(), SizeIs(1));
}

TEST_F(DampingTest, RemembersTheFightersWhereNoWriterIsSeenLater) {
  Contend(jump_missing_, 10);
  now_ += absl::Milliseconds(20);
  WriterAttribution suspects;
  suspects.NoteCheck(Wants({}));
  const Commits commits = {.first = 1, .last = 1, .writer = {.pid = 17, .command = "rival"}};
  suspects.NoteCommits({&commits, 1}, /*others=*/false);
  Plan undone = jump_missing_;
  undone.generation = 1;
  suspects.NoteCheck(undone);
  Allow(jump_missing_);
  damping_.NoteWriters(suspects);
  now_ = damping_.next();
  damping_.NoteApplied(Allow(jump_missing_), now_);
  AllowAfter(absl::Milliseconds(20), jump_missing_);
  damping_.NoteWriters(WriterAttribution());
  ASSERT_THAT(Fights(), SizeIs(1));
  ASSERT_THAT(Fights()[0].by.writers, SizeIs(1));
  EXPECT_EQ(Fights()[0].by.writers[0].command, "rival");
}

TEST_F(DampingTest, AnExistingChainIsJumpedToWhileItsRulesWait) {
  Contend(Wants({DropMark()}), 15);
  EXPECT_THAT(AllowAfter(absl::Milliseconds(1), Wants({DropMark(), InputJump()})),
              ElementsAre(InputJump()));
}

TEST_F(DampingTest, WhatAFightIsOverIsMissingUntilItsRepairHasLastedASecond) {
  Contend(jump_missing_, 11);
  ASSERT_THAT(Fights(), SizeIs(1));
  EXPECT_TRUE(Fights()[0].missing) << "repaired, and likely to be undone again";
  EXPECT_EQ(damping_.next(), now_ + absl::Seconds(1)) << "when that is known";
  damping_.Allow(Wants({}), now_ + absl::Milliseconds(999));
  EXPECT_TRUE(Fights()[0].missing);
  EXPECT_EQ(damping_.next(), now_ + absl::Seconds(1));
  AllowAfter(absl::Seconds(1), Wants({}));
  EXPECT_FALSE(Fights()[0].missing);
  EXPECT_EQ(damping_.next(), SteadyTime::InfiniteFuture());
  AllowAfter(absl::Seconds(1), jump_missing_);
  EXPECT_TRUE(Fights()[0].missing) << "undone later than within a second, and held back";
}

// Another program adds a copy of our rule again and again: the rule itself is never missing.
TEST_F(DampingTest, AFightOverWhatIsDeletedLeavesNothingMissing) {
  const Change deleted = {
      netlink::DeleteRule{
          .chain = Filter("INPUT"), .handle = 7, .number = 2, .rule = JumpTo("KUBE-FIREWALL")},
      "duplicate"};
  Contend(Wants({deleted}), 12);
  EXPECT_THAT(AllowAfter(absl::Milliseconds(20), Wants({deleted})), IsEmpty());
  ASSERT_THAT(Fights(), SizeIs(1));
  EXPECT_FALSE(Fights()[0].missing);
}

// Families are read one by one where they cannot be read together. A check of one shows nothing
// about the other, so it must not restart the other's waits.
TEST_F(DampingTest, ACheckOfOneFamilyLeavesTheWaitsOfTheOther) {
  Contend(jump_missing_, 11);
  ASSERT_THAT(AllowAfter(absl::Milliseconds(20), jump_missing_), IsEmpty());
  const SteadyTime due = damping_.next();
  Plan other = Wants({});
  other.families = {Family::kIPv6};
  for (int i = 0; i < 5; ++i) {
    now_ += absl::Milliseconds(10);
    Allow(other);
    EXPECT_EQ(damping_.next(), due);
    EXPECT_THAT(Allow(jump_missing_), IsEmpty());
    EXPECT_EQ(damping_.next(), due);
  }
  EXPECT_THAT(damping_.Allow(jump_missing_, due), ElementsAre(InputJump()));
}

TEST_F(DampingTest, AShorterSyncPeriodBoundsTheWaitsToo) {
  damping_ = Damping(absl::Seconds(1));
  const std::vector<absl::Duration> waits = Contend(jump_missing_, 30);
  EXPECT_EQ(waits.back(), absl::Seconds(1));
}

// It is the same missing rule even if others insert and delete rules above its place.
TEST_F(DampingTest, AFightIsTheSameFightWhereverTheRuleIsToBeInserted) {
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 15; ++i) {
    Change change = InputJump();
    auto& add = std::get<netlink::AddRule>(change.operation);
    add.before = static_cast<netlink::RuleHandle>(100 + i);
    add.number = 1 + i;
    waits.push_back(Contend(Wants({change}), 1).front());
  }
  EXPECT_EQ(waits[10], absl::Milliseconds(100));
  EXPECT_EQ(waits[14], absl::Milliseconds(1600));
  ASSERT_THAT(Fights(), SizeIs(1));
  EXPECT_EQ(Fights()[0].item, "-A INPUT -j KUBE-FIREWALL");
}

// Another agent adds the second copy that we delete: the copy is in dispute, the rule is not.
TEST_F(DampingTest, WhatIsAddedAndWhatIsDeletedAreTwoItems) {
  const Change added = InputJump();
  const Change deleted = {
      netlink::DeleteRule{
          .chain = Filter("INPUT"), .handle = 7, .number = 2, .rule = JumpTo("KUBE-FIREWALL")},
      "duplicate"};
  Contend(Wants({deleted}), 10);
  Contend(Wants({added}), 1);
  EXPECT_THAT(Fights(), IsEmpty()) << "each was undone fewer than ten times";
}

TEST_F(DampingTest, RemembersABoundedNumberOfRepairs) {
  const auto numbered = [](int number) {
    return Add(Filter("INPUT"), JumpTo("KUBE-FIREWALL", std::to_string(number)));
  };
  // With `before` others known, whether a fight over one more is seen.
  const auto is_seen = [&](int before) {
    damping_ = Damping(kSyncPeriod);
    std::vector<Change> others;
    for (int i = 0; i < before; ++i) others.push_back(numbered(i));
    damping_.NoteApplied(others, now_);
    Contend(Wants({numbered(before)}), 12);
    return !Fights().empty();
  };
  EXPECT_TRUE(is_seen(255));
  EXPECT_FALSE(is_seen(256));
  // What is known already is followed further.
  damping_ = Damping(kSyncPeriod);
  std::vector<Change> known;
  for (int i = 0; i < 256; ++i) known.push_back(numbered(i));
  damping_.NoteApplied(known, now_);
  Contend(Wants({numbered(0)}), 12);
  EXPECT_THAT(Fights(), SizeIs(1));
}

Plan WipedByKubeProxy() {
  Plan plan = Wants({DropMark()});
  plan.claimed_by_kube_proxy = {Family::kIPv4};
  return plan;
}

// And kube-proxy has not been back yet.
Plan FlushedByAnother() {
  Plan plan = WipedByKubeProxy();
  plan.diff.changes.push_back(Add(Filter("KUBE-FIREWALL"), DropMartians(0)));
  return plan;
}

TEST_F(DampingTest, ARefillIsDoneAtOnceButOnlyOnceASecondAndIsNoFight) {
  const std::vector<absl::Duration> waits =
      Contend(WipedByKubeProxy(), 50, absl::Milliseconds(200));
  EXPECT_EQ(waits[0], absl::ZeroDuration());
  for (size_t i = 1; i < waits.size(); ++i) EXPECT_EQ(waits[i], absl::Milliseconds(800)) << i;
  EXPECT_THAT(damping_.TakeBegun(), IsEmpty());
}

TEST_F(DampingTest, ARefillThatIsSecondsApartDoesNotWait) {
  for (const absl::Duration wait : Contend(WipedByKubeProxy(), 20, absl::Seconds(2))) {
    EXPECT_EQ(wait, absl::ZeroDuration());
  }
}

TEST_F(DampingTest, OnlyWhatKubeProxyDoesNotKeepItselfIsARefill) {
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
  EXPECT_FALSE(IsRefill(DropMark(), FlushedByAnother())) << "kube-proxy puts back its own rule";
  Plan elsewhere = wiped;
  elsewhere.diff.changes.push_back(Add(Nat("KUBE-MARK-MASQ"), SetBit(14)));
  elsewhere.diff.changes.push_back(Add(Filter("INPUT"), DropMartians(0)));
  EXPECT_TRUE(IsRefill(DropMark(), elsewhere)) << "what is missing elsewhere does not count";
}

// The martian rule of the same chain must not wait for a drop-mark rule that was just refilled, or
// that waits for its refill.
TEST_F(DampingTest, NothingWaitsWhereAnotherFlushesTheChainOfARefill) {
  for (const bool waits : {false, true}) {
    const Plan wiped = WipedByKubeProxy();
    damping_ = Damping(kSyncPeriod);
    damping_.NoteApplied(Allow(wiped), now_);
    if (waits) EXPECT_THAT(AllowAfter(absl::Milliseconds(300), wiped), IsEmpty());
    EXPECT_THAT(AllowAfter(absl::Milliseconds(100), FlushedByAnother()), SizeIs(2));
  }
}

}  // namespace
}  // namespace kipt::agent
