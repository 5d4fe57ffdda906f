// SPDX-License-Identifier: Apache-2.0
//
// The agent next to `kube-proxy --cleanup`, and next to programs that imitate it.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/loop/control_loop.h"
#include "agent/loop/damping.h"
#include "agent/loop/plan.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/agent/loop/damping_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/rows.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::cleanup_test {
namespace {

Change PostroutingJump(Family family = Family::kIPv4) {
  return Add(Nat("POSTROUTING", family), JumpTo("KUBE-POSTROUTING"));
}

Change PostroutingRule() { return Add(Nat("KUBE-POSTROUTING"), MasqueradeAll(14)); }

// What a check finds in IPv4 while kube-proxy's services exist, and after they are deleted.
Plan InCleanup(std::vector<Change> changes = {PostroutingJump()}, bool services = true) {
  Plan plan = Wants(std::move(changes));
  plan.in_cleanup = {Family::kIPv4};
  if (services) plan.with_services = {Family::kIPv4};
  return plan;
}
Plan Serving() {
  Plan plan = Wants({});
  plan.with_services = {Family::kIPv4};
  return plan;
}
std::vector<Change> AllowIf(Damping& damping, const Plan& plan, SteadyTime now,
                            std::optional<bool> kube_proxy_lives) {
  return damping.Allow(plan, now, [&](const Item& /*jump*/) { return kube_proxy_lives; });
}

// It deletes the jump as soon as it is back, and its own KUBE-SERVICES has no users.
TEST(CleanupTest, AnImitatorOfACleanupKeepsTheJumpAwayForFiveSecondsOfAMinute) {
  for (const std::optional<bool> lives : {std::optional<bool>(), std::optional<bool>(true)}) {
    Damping damping(kSyncPeriod);
    const Plan plan = InCleanup();
    absl::Duration away;
    for (SteadyTime now = kStart; now < kStart + absl::Minutes(10);) {
      const SteadyTime deleted = now;
      std::vector<Change> allowed = AllowIf(damping, plan, now, lives);
      while (allowed.empty()) {
        ASSERT_GT(damping.next(), now);
        ASSERT_LE(now - deleted, kCleanupWait) << "it waits for ever";
        now = damping.next();
        allowed = AllowIf(damping, plan, now, lives);
      }
      away += now - deleted;
      damping.NoteApplied(allowed, now);
      now += absl::Milliseconds(1100);  // Sooner would be a fight.
      Allow(damping, Serving(), now);
    }
    EXPECT_GE(away, kCleanupWait * 9);
    EXPECT_LE(away, kCleanupWait * 10);
  }
}

TEST(CleanupTest, ACleanupThatIsRepeatedHasWhatIsLeftOfTheMinutesFiveSeconds) {
  Damping damping(kSyncPeriod);
  const Plan plan = InCleanup({PostroutingJump()}, /*services=*/false);
  EXPECT_THAT(AllowIf(damping, plan, kStart, true), IsEmpty());
  const SteadyTime over = kStart + absl::Seconds(2);
  EXPECT_THAT(AllowIf(damping, plan, over, true), IsEmpty());
  EXPECT_THAT(AllowIf(damping, plan, over, false), SizeIs(1));
  const SteadyTime again = kStart + absl::Seconds(20);
  EXPECT_THAT(AllowIf(damping, plan, again, true), IsEmpty());
  EXPECT_THAT(AllowIf(damping, plan, again + absl::Milliseconds(2999), true), IsEmpty());
  EXPECT_THAT(AllowIf(damping, plan, again + absl::Seconds(3), true), SizeIs(1));
  EXPECT_THAT(AllowIf(damping, plan, kStart + absl::Seconds(59), true), SizeIs(1));
  EXPECT_THAT(AllowIf(damping, plan, kStart + absl::Minutes(1), true), IsEmpty());
}

TEST(CleanupTest, AnImitatorWhoIsFasterFightsForTheJumpLikeAnyWriter) {
  Damping damping(kSyncPeriod);
  SteadyTime now = kStart;
  for (int i = 0; i < 20; ++i) {
    while (Allow(damping, InCleanup(), now).empty()) {
      ASSERT_GT(damping.next(), now);
      now = damping.next();
    }
    damping.NoteApplied(InCleanup().diff.changes, now);
    now += absl::Milliseconds(20);
  }
  EXPECT_THAT(damping.TakeBegun(), SizeIs(1));
}

TEST(CleanupTest, NothingButTheWayToKubePostroutingWaitsForACleanup) {
  Damping damping(kSyncPeriod);
  const Change masq = Add(Nat("KUBE-MARK-MASQ"), SetBit(14));
  const Change label = Add(Nat("POSTROUTING"), JumpTo("KUBELET-POSTROUTING"));
  const Plan plan =
      InCleanup({InputJump(), Create(Nat("KUBE-POSTROUTING")), PostroutingRule(), DropMark(), masq,
                 PostroutingJump(), label, PostroutingJump(Family::kIPv6)});
  const std::vector<Change> others = {InputJump(), DropMark(), masq, label,
                                      PostroutingJump(Family::kIPv6)};
  EXPECT_EQ(Allow(damping, plan, kStart), others);
  EXPECT_EQ(damping.next(), kStart + kCleanupWait);
  EXPECT_EQ(Allow(damping, plan, kStart + kCleanupWait - absl::Milliseconds(1)), others);
  EXPECT_EQ(Allow(damping, plan, kStart + kCleanupWait), plan.diff.changes);
  EXPECT_EQ(damping.next(), SteadyTime::InfiniteFuture());
}

// Up to 1.33 its part for IPVS deletes KUBE-POSTROUTING once more.
TEST(CleanupTest, ACleanupIsNotOverWithTheChainsOfServices) {
  Damping damping(kSyncPeriod);
  EXPECT_THAT(Allow(damping, InCleanup(), kStart), IsEmpty());
  const Plan later = InCleanup({PostroutingJump(), PostroutingRule()}, /*services=*/false);
  EXPECT_THAT(Allow(damping, later, kStart + absl::Seconds(4)), IsEmpty());
  EXPECT_EQ(Allow(damping, later, kStart + kCleanupWait), later.diff.changes);
}

TEST(CleanupTest, ACleanupThatIsSeenLateIsKnownByTheServicesOfTheCheckBefore) {
  const Plan late = InCleanup({PostroutingJump()}, /*services=*/false);
  Damping damping(kSyncPeriod);
  Allow(damping, Serving(), kStart);
  EXPECT_THAT(Allow(damping, late, kStart + absl::Milliseconds(1)), IsEmpty());
  Damping without(kSyncPeriod);
  Allow(without, Wants({}), kStart);
  EXPECT_EQ(Allow(without, late, kStart + absl::Milliseconds(1)), late.diff.changes);
}

TEST(CleanupTest, ACleanupOfKubeProxyByNameNeedsNoServicesAndEndsWithTheProcess) {
  const Plan plan = InCleanup({PostroutingJump()}, /*services=*/false);
  Damping damping(kSyncPeriod);
  EXPECT_THAT(AllowIf(damping, plan, kStart, true), IsEmpty());
  EXPECT_EQ(damping.next(), kStart + absl::Milliseconds(100));
  EXPECT_THAT(AllowIf(damping, plan, kStart + absl::Seconds(1), true), IsEmpty());
  EXPECT_EQ(AllowIf(damping, plan, kStart + absl::Seconds(1), false), plan.diff.changes);
  Damping ended(kSyncPeriod);
  EXPECT_EQ(AllowIf(ended, plan, kStart, false), plan.diff.changes);
  EXPECT_EQ(AllowIf(ended, InCleanup(), kStart, false), InCleanup().diff.changes);
}

TEST(CleanupTest, TheJumpToKubePostroutingIsPutBackAsSoonAsTheCleanupIsOver) {
  Damping damping(kSyncPeriod);
  Plan plan = InCleanup();
  EXPECT_THAT(Allow(damping, plan, kStart), IsEmpty());
  plan.in_cleanup = {};
  EXPECT_EQ(Allow(damping, plan, kStart + absl::Milliseconds(1)), plan.diff.changes);
  // Another cleanup later has its own time.
  plan.in_cleanup = {Family::kIPv4};
  EXPECT_THAT(Allow(damping, plan, kStart + absl::Hours(1)), IsEmpty());
  // A check of the other family shows nothing about this one.
  Plan other = Wants({});
  other.families = {Family::kIPv6};
  EXPECT_THAT(Allow(damping, other, kStart + absl::Hours(1) + absl::Seconds(1)), IsEmpty());
  EXPECT_EQ(damping.next(), kStart + absl::Hours(1) + kCleanupWait);
  EXPECT_EQ(Allow(damping, plan, kStart + absl::Hours(1) + kCleanupWait), plan.diff.changes);
}

TEST_F(AgentTest, PutsTheJumpBackWhenKubeProxyHasEndedAndAllElseBefore) {
  const TemporaryTree tree;
  tree.Link("pid_namespace", "pid:[4026531836]");
  tree.Write("proc/4242/comm", "iptables\n");
  tree.Write("proc/4242/stat", "4242 (iptables) S 4200 4242 4200 0 -1 4194304 89 0 0 0\n");
  tree.Write("proc/4200/comm", "kube-proxy\n");
  ControlLoopOptions options = Options(Mode::kLegacy);
  options.writers = {.proc = tree.Path("proc"), .pid_namespace = tree.Path("pid_namespace")};
  StartWith(std::move(options));
  ASSERT_TRUE(TurnUntil([&] { return InPlace(); }));
  kernel_.ActAs(4242, "iptables");
  DeleteJump(Nat("POSTROUTING"));
  kernel_.RemoveChain(Nat("KUBE-POSTROUTING"));
  kernel_.RemoveChain(Filter("KUBE-FIREWALL"));
  kernel_.AddChain(Filter("KUBE-FIREWALL"));
  kernel_.RemoveChain(Nat("KUBE-MARK-MASQ"));
  TurnFor(absl::Milliseconds(500));
  EXPECT_THAT(kernel_.state().Find(Nat("POSTROUTING"))->rules, IsEmpty());
  EXPECT_EQ(kernel_.state().Find(Nat("KUBE-POSTROUTING")), nullptr);
  EXPECT_THAT(kernel_.state().Find(Filter("KUBE-FIREWALL"))->rules, SizeIs(2));
  EXPECT_NE(kernel_.state().Find(Nat("KUBE-MARK-MASQ")), nullptr);
  EXPECT_FALSE(IsReady(agent_->state()));
  EXPECT_THAT(NotReadyBecause(agent_->state().families[0]), HasSubstr("not made yet"));
  tree.Remove("proc/4200");
  const SteadyTime ended = SteadyNow();
  ASSERT_TRUE(TurnUntil([&] { return InPlace(); }));
  EXPECT_THAT(kernel_.state().Find(Nat("POSTROUTING"))->rules, SizeIs(1));
  EXPECT_LT(SteadyNow() - ended, absl::Seconds(2));
}

// kube-proxy --cleanup of any version names neither KUBE-MARK-DROP nor what is in other tables.
TEST(CompareTest, ACleanupIsWhereNatLacksTheJumpToKubePostroutingAndOnlyWhatKubeProxyDeletes) {
  const netlink::ChainId jump = Nat("POSTROUTING");
  const netlink::ChainId six_jump = Nat("POSTROUTING", Family::kIPv6);
  const netlink::ChainId chain = Nat("KUBE-POSTROUTING");
  const netlink::ChainId masq = Nat("KUBE-MARK-MASQ");
  const netlink::ChainId drop = Nat("KUBE-MARK-DROP");
  const netlink::ChainId services = Nat("KUBE-SERVICES");
  struct Row {
    std::string name;
    std::vector<netlink::ChainId> emptied;
    std::vector<netlink::ChainId> removed = {};
    std::vector<Family> in_cleanup = {Family::kIPv4};
  };
  const std::vector<Family> none;
  const Row rows[] = {
      {"the jump is missing", List(jump)},
      {"nothing is missing", List(), List(), none},
      {"the chain is missing too", List(jump), List(chain)},
      {"from 1.34 on KUBE-MARK-MASQ is missing too", List(jump), List(chain, masq, services)},
      {"only KUBE-MARK-MASQ is missing", List(), List(masq), none},
      {"another rule is missing", List(drop), List(), none},
      {"another rule is missing too, as after a flush", List(jump, drop), List(), none},
      {"another table's jump is missing too", List(jump, Filter("INPUT"))},
      {"another table's jump is missing", List(Filter("INPUT")), List(), none},
      {"the other family's jump is missing", List(six_jump), List(), List(Family::kIPv6)},
      {"both families' jumps are missing", List(jump, six_jump), List(),
       List(Family::kIPv4, Family::kIPv6)},
  };
  const PolicyInput input = Wanting(Mode::kLegacy, netlink::kFamilies, {});
  Observed existing = Made(input);
  existing.Chain(services);
  for (const Row& row : rows) {
    Observed node = existing;
    for (const netlink::ChainId& id : row.emptied) node.Chain(id);
    for (const netlink::ChainId& id : row.removed) node.Remove(id);
    const Plan plan = Compare(input, {}, node.snapshot());
    EXPECT_EQ(plan.in_cleanup, row.in_cleanup) << row.name;
    EXPECT_THAT(plan.with_services, SizeIs(node.snapshot().Find(services) == nullptr ? 0 : 1))
        << row.name;
  }
  Observed duplicate = existing;
  duplicate.Chain(drop, {SetBit(15), SetBit(15)});
  EXPECT_THAT(Compare(input, {}, duplicate.snapshot()).in_cleanup, IsEmpty());
  Observed stays = existing;
  stays.Chain(jump).Chain(Nat("PREROUTING"), {JumpTo("KUBE-SERVICES")});
  EXPECT_THAT(Compare(input, {}, stays.snapshot()).in_cleanup, IsEmpty());
}

TEST(LastComparisonTest, ComparesAgainWhateverMayMatter) {
  using netlink::Snapshot;
  struct Row {
    std::string name;
    void (*change)(Snapshot&);
    RuleSupport support = {};
  };
  const Row rows[] = {
      {"another generation", [](Snapshot& node) { ++node.generation; }},
      {"the martian rule has counted",
       [](Snapshot& node) { node.chains[Filter("KUBE-FIREWALL")].rules[0].counters.packets = 5; }},
      {"the native table has counted", [](Snapshot& node) { node.native->counters.packets = 5; }},
      {"the native table is altered",
       [](Snapshot& node) { node.native->altered = true; },
       {.xt = false}},
      {"a rule is another",
       [](Snapshot& node) {
         node.chains[Filter("KUBE-FIREWALL")].rules[0].content = ForeignAccept();
       }},
      {"a chain is gone", [](Snapshot& node) { node.chains.erase(Mangle("KUBE-IPTABLES-HINT")); }},
      {"a chain is another",
       [](Snapshot& node) {
         auto hint = node.chains.extract(Mangle("KUBE-IPTABLES-HINT"));
         hint.key().name = "KUBE-IPTABLES-OTHER";
         node.chains.insert(std::move(hint));
       }},
      {"a base chain has lost its hook",
       [](Snapshot& node) { node.chains[Filter("INPUT")].hooked = false; }},
      {"a table is dormant",
       [](Snapshot& node) {
         node.dormant[{Family::kIPv4, netlink::Table::kFilter}] = netlink::kTableDormant;
       }},
      {"a rule is one of xtables",
       [](Snapshot& node) { node.chains[Filter("INPUT")].rules[0].xt = true; },
       {.xt = false}},
      {"iptables cannot list a rule",
       [](Snapshot& node) { node.chains[Filter("INPUT")].rules[0].unlistable = true; }},
  };
  const PolicyInput input = Wanting(Mode::kCleanup, netlink::kFamilies, {});
  const Snapshot calm = Observed(Made(input)).Native().snapshot();
  for (const Row& row : rows) {
    Snapshot changed = calm;
    row.change(changed);
    const Plan anew = Compare(input, row.support, changed);
    EXPECT_FALSE(anew == Compare(input, row.support, calm)) << row.name << ": it does not matter";
    LastComparison last;
    last.Compare(input, row.support, calm);
    EXPECT_TRUE(last.Compare(input, row.support, changed) == anew) << row.name;
  }
  LastComparison last;
  for (const RuleSupport& support : {RuleSupport(), RuleSupport{.xt = false}}) {
    for (const PolicyInput& other :
         {input, Wanting(Mode::kLegacy, netlink::kFamilies, {}), input}) {
      EXPECT_TRUE(last.Compare(other, support, calm) == Compare(other, support, calm));
    }
  }
}

}  // namespace
}  // namespace kipt::agent::cleanup_test
