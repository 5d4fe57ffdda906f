// SPDX-License-Identifier: Apache-2.0
//
// What a diff says of each thing, and the native table in it.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

std::vector<std::string> Conditions(const Diff& diff) {
  std::vector<std::string> names;
  for (const Finding& finding : diff.findings) {
    names.emplace_back(ConditionName(finding.condition));
  }
  return names;
}

TEST(DiffReasonsTest, SaysWhyADamagedOrMisplacedRuleGoes) {
  struct Row {
    const char* name;
    std::vector<RuleContent> rules;
    const char* reason;
  };
  const Row rows[] = {
      {"damaged",
       {BareReturn(), ReturnUnmarked(14), ClearBit(14), MasqueradeAll(0)},
       "damaged: it lost its match"},
      {"twice",
       {ReturnUnmarked(14), ReturnUnmarked(14), ClearBit(14), MasqueradeAll(0)},
       "duplicate"},
      {"too late",
       {ReturnUnmarked(14), ForeignAcceptAll(), ClearBit(14), MasqueradeAll(0)},
       "comes after a rule that may decide first"},
      {"out of order", {ClearBit(14), ReturnUnmarked(14), MasqueradeAll(0)}, "is out of order"},
  };
  for (const Row& row : rows) {
    Observed observed = Made(Legacy());
    observed.Chain(Nat("KUBE-POSTROUTING"), row.rules);
    const Diff diff = ComputeDiff(Legacy(), observed.snapshot());
    int deleted = 0;
    for (const Change& change : diff.changes) {
      if (!std::holds_alternative<netlink::DeleteRule>(change.operation)) continue;
      EXPECT_EQ(change.reason, row.reason) << row.name;
      ++deleted;
    }
    EXPECT_GE(deleted, 1) << row.name;
  }
}

// transaction.h: the number of what is appended is 0.
TEST(DiffReasonsTest, NumbersOnlyWhatIsInserted) {
  int appended = 0;
  for (const Change& change : ComputeDiff(Legacy(), {}).changes) {
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    if (add == nullptr) continue;
    EXPECT_EQ(add->number, 0) << netlink::ToString(change.operation);
    ++appended;
  }
  EXPECT_GT(appended, 0);
}

TEST(DiffReasonsTest, MakesABaseChainThatAJumpNeedsAlthoughAllElseStands) {
  Observed observed;
  const PolicyInput desired = Cleanup();
  for (const DesiredChain& chain : DesiredRuleset(desired).chains) {
    std::vector<RuleContent> rules;
    for (const DesiredRule& rule : chain.rules) rules.emplace_back(rule.rule);
    observed.Chain(chain.id, rules);
  }
  EXPECT_THAT(Operations(ComputeDiff(desired, observed.snapshot())),
              ElementsAre(":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]",
                          "-A INPUT -j KUBE-FIREWALL", "-A OUTPUT -j KUBE-FIREWALL"));
}

TEST(DiffReasonsTest, ARuleThatGoesIsNotStaleAndOneThatStaysIs) {
  Observed replaced = Made(Legacy());
  replaced.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(20), SetBit(14)});
  EXPECT_THAT(ComputeDiff(Legacy(), replaced.snapshot()).stale, IsEmpty());
  Observed stays = Made(Cleanup());
  stays.Chain(Filter("KUBE-FIREWALL"), {DropMartians(0), DropMarked(15), DropMartians(0)});
  const Diff diff = ComputeDiff(Cleanup(), stays.snapshot());
  ASSERT_EQ(diff.changes.size(), 1);
  EXPECT_EQ(diff.changes[0].reason, "duplicate");
  ASSERT_EQ(diff.stale.size(), 1);
  EXPECT_THAT(diff.stale[0].text, HasSubstr("--mark 0x8000/0x8000 -j DROP"));
  EXPECT_EQ(diff.stale[0].reason, "stale, kept: not part of cleanup mode (mark bit 15)");
  // As the first of its chain, too.
  stays.Chain(Filter("KUBE-FIREWALL"), {DropMarked(15), DropMartians(0)});
  EXPECT_EQ(ComputeDiff(Cleanup(), stays.snapshot()).stale.size(), 1);
}

TEST(DiffReasonsTest, SaysInModeOffWhoseEachThingIs) {
  Observed observed = Made(Legacy());
  observed.Chain(Nat("KUBE-SERVICES"));
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  std::map<std::string, std::string> reasons;
  const Diff diff = ComputeDiff(off, observed.snapshot());
  for (const auto* items : {&diff.stale, &diff.of_kube_proxy}) {
    for (const ExistingItem& one : *items) reasons[one.chain.name + " " + one.text] = one.reason;
  }
  EXPECT_THAT(reasons["KUBE-FIREWALL :KUBE-FIREWALL - [0:0]"],
              HasSubstr("kube-proxy's: it uses this chain too; "));
  EXPECT_THAT(reasons["KUBE-IPTABLES-HINT :KUBE-IPTABLES-HINT - [0:0]"],
              HasSubstr("stale, kept: --make-iptables-util-chains=false; "));
  EXPECT_EQ(reasons["INPUT -A INPUT -j KUBE-FIREWALL"], "kube-proxy's: it uses this chain too");
}

// "put", "remove", "in place", "stale": each that holds.
std::string WhatBecomesOfNative(const Diff& diff) {
  std::string text;
  for (const Change& change : diff.changes) {
    if (!IsNative(change)) continue;
    text += std::holds_alternative<netlink::PutNativeTable>(change.operation) ? "put" : "remove";
    EXPECT_NE(change.reason, "");
  }
  for (const ExistingItem& one : diff.in_place) text += IsNative(one) ? "in place" : "";
  for (const ExistingItem& one : diff.stale) {
    if (!IsNative(one)) continue;
    text += "stale";
    EXPECT_THAT(one.reason, HasSubstr("stale, kept: "));
  }
  return text;
}

TEST(DiffReasonsTest, KeepsANativeTableWhereTheMartianRuleCannotStand) {
  const netlink::ObservedNativeTable native = {.counters = {.packets = 7}};
  Observed unhooked = Made(Cleanup());
  unhooked.Chain(Filter("INPUT"), {}, /*hooked=*/false);
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Cleanup(), unhooked.Native(native).snapshot())),
            "stale");
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Cleanup(), Made(Cleanup()).Native(native).snapshot())),
            "remove");
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(off, Observed().Native(native).snapshot())), "stale");
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Legacy(), Made(Legacy()).Native(native).snapshot())),
            "remove");
}

TEST(DiffReasonsTest, OnlyTheNativeTableIsNative) {
  EXPECT_TRUE(IsNative(Filter(std::string(kNativeTable))));
  EXPECT_FALSE(IsNative(Filter(std::string(kNativeTable), Family::kIPv6)));
  EXPECT_FALSE(IsNative(Nat(std::string(kNativeTable))));
  EXPECT_FALSE(IsNative(Filter("KUBE-FIREWALL")));
  const Diff diff = ComputeDiff(Cleanup(), Made(Cleanup()).Native().snapshot());
  EXPECT_EQ(diff.changes.size(), 1U);
  EXPECT_THAT(WithoutNative(diff.changes), IsEmpty());
}

const RuleSupport kNoXt = {.xt = false, .reason = "no xt"};
PolicyInput Hinting(Mode mode, HintPolicy hint) {
  PolicyInput input = Wanting(mode, kIPv4Only);
  input.hint = hint;
  return input;
}
Ruleset WithoutXt(Mode mode, absl::Span<const Family> families) {
  return DesiredRuleset(Wanting(mode, families), kNoXt);
}
Diff DiffWithoutXt(Mode mode, const std::optional<netlink::ObservedNativeTable>& native = {},
                   HintPolicy hint = HintPolicy::kUsable) {
  return ComputeDiff(Hinting(mode, hint), {.chains = {}, .native = native}, kNoXt);
}

TEST(DiffReasonsTest, PutsTheNativeTableUnlessItStandsAsItMust) {
  netlink::ObservedNativeTable native;
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup, native)), "in place");
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup)), "put");
  native.altered = true;
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup, native)), "put");
}

TEST(DiffReasonsTest, WantsTheNativeTableForIPv4OnlyAndNothingInModeOff) {
  const Family six[] = {Family::kIPv6};
  EXPECT_TRUE(WithoutXt(Mode::kCleanup, kIPv4Only).native.has_value());
  EXPECT_FALSE(WithoutXt(Mode::kCleanup, six).native.has_value());
  EXPECT_FALSE(WithoutXt(Mode::kOff, kIPv4Only).native.has_value());
  EXPECT_THAT(DesiredRuleset(Hinting(Mode::kOff, HintPolicy::kAlways), kNoXt).chains, IsEmpty());
  EXPECT_EQ(DesiredRuleset(Hinting(Mode::kLegacy, HintPolicy::kAlways), kNoXt).chains.size(), 1);
}

TEST(DiffReasonsTest, SaysWhatIsNotPossibleWhereIptablesCanHoldNoRule) {
  const Diff legacy = DiffWithoutXt(Mode::kLegacy);
  ASSERT_THAT(Conditions(legacy), ElementsAre("LegacyModeImpossible"));
  EXPECT_EQ(legacy.findings[0].chain, Nat("KUBE-MARK-MASQ"));
  EXPECT_FALSE(legacy.findings[0].repaired);
  const Diff cleanup = DiffWithoutXt(Mode::kCleanup);
  ASSERT_THAT(Conditions(cleanup), ElementsAre("NativeProtection"));
  EXPECT_EQ(cleanup.findings[0].chain, Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_FALSE(cleanup.findings[0].repaired);
  EXPECT_THAT(cleanup.findings[0].message, HasSubstr("no hint leads other programs"));
  const Diff always = DiffWithoutXt(Mode::kCleanup, {}, HintPolicy::kAlways);
  EXPECT_THAT(always.findings[0].message, HasSubstr("the hint is made anyway"));
}

TEST(DiffReasonsTest, TheNativeTableGoesIntoTheTransactionOfIPv4) {
  const Family six[] = {Family::kIPv6};
  const Diff diff = DiffWithoutXt(Mode::kCleanup);
  const auto operations = ToTransaction(diff.changes, 1, kIPv4Only).operations;
  EXPECT_TRUE(std::any_of(operations.begin(), operations.end(), netlink::IsNative));
  EXPECT_THAT(ToTransaction(diff.changes, 1, six).operations, IsEmpty());
}

// The metric `findings` has a series for each of them.
TEST(DiffReasonsTest, EachConditionIsListedOnceAndHasANameOfItsOwn) {
  const absl::Span<const ConditionRow> rows = kipt::agent::Conditions();
  ASSERT_EQ(rows.size(), static_cast<size_t>(Condition::kWriteRefused) + 1);
  std::set<absl::string_view> names;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].condition, static_cast<Condition>(i));
    EXPECT_EQ(ConditionName(rows[i].condition), rows[i].name);
    EXPECT_EQ(SeverityOf(rows[i].condition), rows[i].severity);
    Finding finding = {.condition = rows[i].condition, .chain = {}, .message = {}};
    EXPECT_EQ(NeedsAttention(finding), rows[i].severity != Severity::kInfo);
    finding.repaired = true;
    EXPECT_FALSE(NeedsAttention(finding));
    names.insert(rows[i].name);
  }
  EXPECT_EQ(names.size(), rows.size());
}

}  // namespace
}  // namespace kipt::agent
