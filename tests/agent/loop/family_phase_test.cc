// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <vector>

#include "absl/time/clock.h"
#include "agent/loop/round.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

SyncReport Good() {
  SyncReport report;
  report.families = {{Family::kIPv4, absl::OkStatus()}, {Family::kIPv6, absl::OkStatus()}};
  return report;
}

TEST(FamilyPhaseTest, WhatStandsWithoutFindingsIsInPlace) {
  EXPECT_EQ(JudgeFamily(Family::kIPv4, Good(), {}),
            (FamilyState{.family = Family::kIPv4, .phase = FamilyPhase::kInPlace}));
}

TEST(FamilyPhaseTest, ALookThatFailsFailsEveryFamily) {
  SyncReport report;
  report.status = absl::PermissionDeniedError("no CAP_NET_ADMIN");
  for (const Family family : netlink::kFamilies) {
    const FamilyState verdict = JudgeFamily(family, report, {});
    EXPECT_EQ(verdict.phase, FamilyPhase::kFailed);
    EXPECT_EQ(verdict.reason, "no CAP_NET_ADMIN");
  }
}

TEST(FamilyPhaseTest, OneFamilysRefusalIsNotTheOthers) {
  SyncReport report = Good();
  report.families[1].status = absl::NotFoundError("no module");
  EXPECT_EQ(JudgeFamily(Family::kIPv4, report, {}).phase, FamilyPhase::kInPlace);
  EXPECT_EQ(JudgeFamily(Family::kIPv6, report, {}).phase, FamilyPhase::kFailed);
}

// What one condition is called everywhere: in /readyz, in the log, and by `check`, whose exit code
// follows IsReady.
struct OneStateRow {
  Condition condition;
  FamilyPhase phase;
  bool ready;
  absl::LogSeverity severity;
};
constexpr auto kInfo = absl::LogSeverity::kInfo;
constexpr auto kWarning = absl::LogSeverity::kWarning;
constexpr auto kError = absl::LogSeverity::kError;
const OneStateRow kOneState[] = {
    {Condition::kBaseChainNotHooked, FamilyPhase::kFailed, false, kError},
    {Condition::kBitConflict, FamilyPhase::kDegraded, true, kWarning},
    {Condition::kOlderFormKept, FamilyPhase::kInPlace, true, kInfo},
    {Condition::kShadowedJump, FamilyPhase::kFailed, false, kError},
    {Condition::kDamagedRule, FamilyPhase::kFailed, false, kError},
    {Condition::kForeignDropsEverything, FamilyPhase::kFailed, false, kError},
    {Condition::kVoidedMark, FamilyPhase::kDegraded, true, kWarning},
    {Condition::kLegacyModeImpossible, FamilyPhase::kFailed, false, kError},
    {Condition::kConnLabelsImpossible, FamilyPhase::kDegraded, true, kWarning},
    {Condition::kNativeProtection, FamilyPhase::kInPlace, true, kInfo},
    {Condition::kTableDormant, FamilyPhase::kFailed, false, kError},
    {Condition::kWriteRefused, FamilyPhase::kFailed, false, kError},
    {Condition::kShadowedRules, FamilyPhase::kDegraded, true, kWarning},
    {Condition::kPrecedingRule, FamilyPhase::kInPlace, true, kInfo},
    {Condition::kTableIncompatible, FamilyPhase::kDegraded, true, kWarning},
};

TEST(FamilyPhaseTest, EachConditionHasOnePhaseReadinessAndSeverity) {
  ASSERT_EQ(std::size(kOneState), Conditions().size());
  const auto expect = [](const FamilyState& judged, const OneStateRow& row) {
    EXPECT_EQ(FamilyPhaseName(judged.phase), FamilyPhaseName(row.phase));
    EXPECT_EQ(RowOf(judged.phase).severity, row.severity);
    EXPECT_EQ(NotReadyBecause(judged).empty(), row.ready);
    AgentState state;
    state.families = {judged};
    EXPECT_EQ(IsReady(state), row.ready);
  };
  for (const OneStateRow& row : kOneState) {
    SCOPED_TRACE(ConditionName(row.condition));
    SyncReport report = Good();
    report.plan.diff.findings = {{row.condition, Filter("INPUT"), "what was seen", false}};
    for (const bool observe : {false, true}) {
      const FamilyState judged = JudgeFamily(Family::kIPv4, report, {}, observe);
      expect(judged, row);
      if (row.severity != kInfo) {
        EXPECT_THAT(judged.reason, HasSubstr(" in filter/INPUT: what was seen"));
      }
      EXPECT_EQ(JudgeFamily(Family::kIPv6, report, {}, observe).phase, FamilyPhase::kInPlace);
    }
    // What a critical finding says counts above what is pending; nothing else does.
    report.plan.diff.changes = {
        {netlink::AddRule{.chain = Filter("INPUT"), .rule = DropMarked(15)}, "why"}};
    const bool failed = row.phase == FamilyPhase::kFailed;
    expect(JudgeFamily(Family::kIPv4, report, {}, /*observe=*/true),
           failed ? row : OneStateRow{row.condition, FamilyPhase::kObserved, true, kInfo});
    report.plan.diff.changes.clear();
    report.plan.diff.findings[0].repaired = true;
    expect(JudgeFamily(Family::kIPv4, report, {}),
           {row.condition, FamilyPhase::kInPlace, true, kInfo});
  }
}

TEST(FamilyPhaseTest, AFightDegradesItsFamily) {
  const Fight fight{.chain = Filter("INPUT"), .item = "-A INPUT -j KUBE-FIREWALL"};
  EXPECT_EQ(JudgeFamily(Family::kIPv4, Good(), {fight}).phase, FamilyPhase::kDegraded);
  EXPECT_EQ(JudgeFamily(Family::kIPv6, Good(), {fight}).phase, FamilyPhase::kInPlace);
}

TEST(FamilyPhaseTest, ManyFightsAreCountedNotListed) {
  std::vector<Fight> fights;
  for (int i = 0; i < 40; ++i) fights.push_back({.chain = Filter("INPUT"), .item = "item"});
  const FamilyState verdict = JudgeFamily(Family::kIPv4, Good(), fights);
  EXPECT_THAT(verdict.reason, HasSubstr("and 37 more fights"));
  EXPECT_LT(verdict.reason.size(), 400);
}

TEST(FamilyPhaseTest, ThreeFightsAreAllListed) {
  const std::vector<Fight> fights(3, Fight{.chain = Filter("INPUT"), .item = "item"});
  const FamilyState verdict = JudgeFamily(Family::kIPv4, Good(), fights);
  EXPECT_EQ(verdict.reason,
            "OwnershipFight over \"item\" in filter/INPUT, repaired less and less often; "
            "OwnershipFight over \"item\" in filter/INPUT, repaired less and less often; "
            "OwnershipFight over \"item\" in filter/INPUT, repaired less and less often");
}

TEST(FamilyPhaseTest, TheNativeTablePendsUntilItIsPutOrRemovedAndIsOfIPv4) {
  struct Row {
    const char* name;
    bool put;
    bool remove;
    bool was_put;
    bool was_removed;
    int pending;
  };
  const Row rows[] = {
      {"nothing", false, false, false, false, 0},
      {"to put", true, false, false, false, 1},
      {"to put, something removed", true, false, false, true, 1},
      {"put", true, false, true, false, 0},
      {"to remove", false, true, false, false, 1},
      {"to remove, something put", false, true, true, false, 1},
      {"removed", false, true, false, true, 0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    SyncReport report = Good();
    const Change put = {netlink::PutNativeTable{}, "put"};
    const Change remove = {netlink::DeleteNativeTable{}, "remove"};
    if (row.put) report.plan.diff.changes.push_back(put);
    if (row.remove) report.plan.diff.changes.push_back(remove);
    if (row.was_put) report.applied.push_back(put);
    if (row.was_removed) report.applied.push_back(remove);
    const FamilyState verdict = JudgeFamily(Family::kIPv4, report, {}, /*observe=*/true);
    EXPECT_EQ(verdict.pending_changes, row.pending);
    EXPECT_EQ(verdict.reason, row.pending == 0 ? "" : "1 change is needed, and not made (observe)");
    EXPECT_EQ(JudgeFamily(Family::kIPv6, report, {}, /*observe=*/true).pending_changes, 0);
  }
}

TEST(FamilyPhaseTest, WhatIsMissingFailsItsFamilyUnlessItIsARefill) {
  SyncReport report = Good();
  const Change drop = {netlink::AddRule{.chain = Filter("KUBE-FIREWALL"), .rule = DropMarked(15)},
                       "why"};
  report.plan.diff.changes = {drop};
  const FamilyState missing = JudgeFamily(Family::kIPv4, report, {});
  EXPECT_EQ(missing.phase, FamilyPhase::kFailed);
  EXPECT_EQ(missing.reason, "the missing rules or chains are not made yet");
  EXPECT_EQ(JudgeFamily(Family::kIPv4, report, {}, /*observe=*/true).phase, FamilyPhase::kObserved);
  report.plan.claimed_by_kube_proxy = {Family::kIPv4};
  EXPECT_EQ(JudgeFamily(Family::kIPv4, report, {}).phase, FamilyPhase::kInPlace);
  Fight fight = {.chain = Filter("INPUT"), .item = "item", .missing = true};
  EXPECT_EQ(JudgeFamily(Family::kIPv4, Good(), {&fight, 1}).phase, FamilyPhase::kFailed);
}

TEST(FamilyPhaseTest, AnotherReasonIsAChange) {
  const auto pending = [](std::vector<const char*> chains) {
    SyncReport report = Good();
    for (const char* chain : chains) {
      report.plan.diff.changes.push_back(
          {netlink::AddRule{.chain = Filter(chain), .rule = DropMarked(15)}, "why"});
    }
    return JudgeFamily(Family::kIPv4, report, {}, /*observe=*/true);
  };
  const auto fought = [](const char* chain) {
    const Fight fight = {.chain = Filter(chain), .item = "item"};
    return JudgeFamily(Family::kIPv4, Good(), {&fight, 1});
  };
  const auto found = [](const char* chain) {
    SyncReport report = Good();
    report.plan.diff.findings = {{Condition::kShadowedJump, Filter(chain), "below", false}};
    return JudgeFamily(Family::kIPv4, report, {});
  };
  const FamilyState states[] = {
      pending({"INPUT"}), pending({"OUTPUT"}), pending({"INPUT", "INPUT"}),
      fought("INPUT"),    fought("OUTPUT"),    found("INPUT"),
      found("OUTPUT")};
  FamilyState state;
  for (const FamilyState& next : states) {
    EXPECT_TRUE(Update(next, absl::Now(), state)) << next.key;
    EXPECT_FALSE(Update(next, absl::Now(), state)) << next.key;
  }
}

TEST(FamilyPhaseTest, TheSameReasonInOtherWordsIsNoChange) {
  FamilyState state{.family = Family::kIPv4};
  SyncReport report;
  report.status = absl::DeadlineExceededError("the lock is held by process 17");
  const absl::Time first = absl::FromUnixSeconds(1);
  EXPECT_TRUE(Update(JudgeFamily(Family::kIPv4, report, {}), first, state));
  report.status = absl::DeadlineExceededError("the lock is held by process 18");
  EXPECT_FALSE(Update(JudgeFamily(Family::kIPv4, report, {}), first + absl::Seconds(9), state));
  EXPECT_EQ(state.since, first);
  EXPECT_EQ(state.reason, "the lock is held by process 18");
  report.status = absl::NotFoundError("the program is gone");
  EXPECT_TRUE(Update(JudgeFamily(Family::kIPv4, report, {}), first + absl::Seconds(10), state));
  EXPECT_TRUE(Update(JudgeFamily(Family::kIPv4, Good(), {}), first + absl::Seconds(11), state));
  EXPECT_EQ(state.phase, FamilyPhase::kInPlace);
}

}  // namespace
}  // namespace kipt::agent
