// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/round.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using netlink::Family;

SyncReport Good() {
  SyncReport report;
  report.families = {{Family::kIPv4, absl::OkStatus()}, {Family::kIPv6, absl::OkStatus()}};
  return report;
}

TEST(FamilyPhaseTest, WithoutFindingsWhatExistsIsInPlace) {
  EXPECT_EQ(JudgeFamily(Family::kIPv4, Good(), {}),
            (FamilyState{.family = Family::kIPv4, .phase = FamilyPhase::kInPlace}));
}

TEST(FamilyPhaseTest, ACheckThatFailsFailsEveryFamily) {
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

// The name of one condition in /readyz, in the log, and in `check`. The exit code of `check`
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
    {Condition::kForeignBaseChain, FamilyPhase::kFailed, false, kError},
    {Condition::kDropBitConflict, FamilyPhase::kFailed, false, kError},
    {Condition::kBitConflict, FamilyPhase::kDegraded, true, kWarning},
    {Condition::kOlderFormKept, FamilyPhase::kInPlace, true, kInfo},
    {Condition::kShadowedJump, FamilyPhase::kFailed, false, kError},
    {Condition::kPerhapsShadowedJump, FamilyPhase::kDegraded, true, kWarning},
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
    // Only a critical finding outranks pending changes.
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

TEST(FamilyPhaseTest, AFightDegradesItsFamilyAndThreeAreListedAndMoreAreCounted) {
  std::vector<Fight> fights(3, Fight{.chain = Filter("INPUT"), .item = "item"});
  const std::string one =
      "OwnershipFight over \"item\" in filter/INPUT, repaired less and less often";
  const std::string three = absl::StrJoin({one, one, one}, "; ");
  EXPECT_EQ(JudgeFamily(Family::kIPv4, Good(), fights).reason, three);
  fights.resize(40, fights[0]);
  const FamilyState judged = JudgeFamily(Family::kIPv4, Good(), fights);
  EXPECT_EQ(judged.phase, FamilyPhase::kDegraded);
  EXPECT_EQ(judged.reason, three + "; and 37 more fights");
  EXPECT_EQ(JudgeFamily(Family::kIPv6, Good(), fights).phase, FamilyPhase::kInPlace);
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

AgentState State(std::vector<FamilyState> families) {
  AgentState state;
  state.families = std::move(families);
  return state;
}

const FamilyState kIpInPlace = {.family = Family::kIPv4, .phase = FamilyPhase::kInPlace};
const FamilyState kIpDegraded = {
    .family = Family::kIPv4, .phase = FamilyPhase::kDegraded, .reason = "a finding"};
const FamilyState kIp6InPlace = {.family = Family::kIPv6, .phase = FamilyPhase::kInPlace};
const FamilyState kIp6Failed = {
    .family = Family::kIPv6, .phase = FamilyPhase::kFailed, .reason = "not permitted"};

AgentState WithRestart() {
  AgentState state = State({kIpInPlace});
  state.must_restart = "--iptables-mode";
  return state;
}

struct Row {
  std::string name;
  AgentState state;
  std::string status_line;
  bool ready = false;
  // Of the first family.
  std::string not_ready_because = {};
};

const Row kRows[] = {
    {"in place", State({kIpInPlace, kIp6InPlace}), "in place", true},
    {"no attempt has ended", State({{.family = Family::kIPv4}}), "ip pending", false,
     "the first attempt has not ended yet"},
    {"one family failed", State({kIpInPlace, kIp6Failed}), "ip6 failed: not permitted"},
    {"failed for no reason", State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed}}),
     "ip failed", false, "failed"},
    {"degraded", State({kIpDegraded}), "ip degraded: a finding", true},
    {"both", State({kIpDegraded, kIp6Failed}), "ip degraded: a finding; ip6 failed: not permitted"},
    {"a restart is due", WithRestart(), "must restart: --iptables-mode"},
    {"a reason of several lines",
     State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed, .reason = "a\nb\tc"}}),
     "ip failed: a\\nb\\tc", false, "a\nb\tc"},
};

TEST(AgentStateTest, ReadyAndWhyNot) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(IsReady(row.state), row.ready);
    EXPECT_EQ(NotReadyBecause(row.state.families.front()), row.not_ready_because);
    EXPECT_EQ(StatusLine(row.state), row.status_line);
  }
}

TEST(AgentStateTest, IsNotReadyBeforeAnyFamilyIsKnown) { EXPECT_FALSE(IsReady(AgentState())); }

PolicyInput Legacy() {
  const Family ipv4[] = {Family::kIPv4};
  return Wanting(Mode::kLegacy, ipv4, {});
}

TEST(IncidentTest, AChainThatIsGoneIsOneItemWhateverItHeld) {
  const std::vector<Change> changes = ComputeDiff(Legacy(), {}).changes;
  size_t chains = 0;
  size_t jumps = 0;
  for (const DamagedItem& item : DamageOf(changes)) {
    chains += item.kind == DamageKind::kChainMissing ? 1 : 0;
    jumps += item.kind == DamageKind::kJumpMissing ? 1 : 0;
    EXPECT_THAT(item.kind, AnyOf(DamageKind::kChainMissing, DamageKind::kJumpMissing));
  }
  EXPECT_THAT(DamageOf({{{netlink::WakeTable{.chain = Filter("INPUT")}, "why"}}}),
              ElementsAre(DamagedItem{Filter("INPUT"), DamageKind::kTableDormant, "*filter"}));
  EXPECT_EQ(chains, DesiredRuleset(Legacy()).chains.size());
  EXPECT_EQ(jumps, DesiredRuleset(Legacy()).jumps.size());
}

TEST(IncidentTest, TheLineNamesWhatWhoHowLongAndWhatElseIsGone) {
  Incident incident = {
      .damage = {{Filter("INPUT"), DamageKind::kJumpMissing, "-A INPUT -j KUBE-FIREWALL"}},
      .by = {.writers = {{.pid = 4242,
                          .command = "iptables-restor",
                          .parent_pid = 4200,
                          .parent_command = "firewalld"}},
             .others = false},
      .lost_jumps = {},
      .latency = absl::Microseconds(12345),
      .applying = absl::Microseconds(12000)};
  const std::string repaired =
      "Repaired in 12345 us (writing 12000 us) damage by iptables-restor (PID 4242; started by "
      "firewalld, PID 4200): ip filter jump_missing \"-A INPUT -j KUBE-FIREWALL\"";
  EXPECT_EQ(ToString(incident), repaired);
  incident.lost_jumps = {{Nat("PREROUTING"), "CNI-HOSTPORT-DNAT"}, {Nat("POSTROUTING"), "mine"}};
  EXPECT_EQ(ToString(incident),
            repaired +
                "; removed with it, and missing until their owners restore them: ip nat PREROUTING "
                "-> CNI-HOSTPORT-DNAT (the CNI plugin portmap), ip nat POSTROUTING -> mine");
}

TEST(IncidentTest, ALineIsBoundedHoweverMuchIsGone) {
  Incident incident;
  for (int i = 0; i < 1000; ++i) {
    if (i == 12) EXPECT_THAT(ToString(incident), Not(HasSubstr("more")));
    incident.lost_jumps.push_back({Nat("PREROUTING"), "CALI-" + std::to_string(i)});
  }
  EXPECT_THAT(ToString(incident), HasSubstr("and 988 more"));
  EXPECT_LT(ToString(incident).size(), 1500);
}

}  // namespace
}  // namespace kipt::agent
