// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/martians.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "agent/loop/reconciler.h"
#include "agent/policy/diff.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using netlink::OpaqueRule;

Observed InPlace(Mode mode) { return Made(Wanting(mode, netlink::kFamilies, {})); }

// Chains of table filter in IPv4, and their contents instead of the rules that were made.
using Chains = std::map<std::string, std::vector<RuleContent>>;

TEST(MartianProtectionTest, IsARuleThatPacketsForThisNodeComeTo) {
  const RuleContent accept = ForeignAccept();
  const RuleContent accept_all = ForeignAcceptAll();
  const RuleContent jump = JumpTo("KUBE-FIREWALL");
  const RuleContent to_outer = JumpTo("OUTER");
  const RuleContent to_inner = JumpTo("INNER");
  const RuleContent martians = DropMartians(0);
  const RuleContent drop = BareDrop();
  OpaqueRule jump_for_some = ForeignAccept();
  jump_for_some.terminal = false;
  jump_for_some.jump = "KUBE-FIREWALL";
  OpaqueRule unknown = ForeignAccept();
  unknown.perhaps_unconditional = true;
  const Chains in_place[] = {
      {},
      {{"INPUT", {accept, jump}}},
      {{"INPUT", {to_outer, accept_all}}, {"OUTER", {jump}}},
      {{"KUBE-FIREWALL", {accept, martians}}},
      // What drops everything drops martians, too.
      {{"INPUT", {drop, jump}}},
      {{"INPUT", {to_outer}}, {"OUTER", {drop}}},
      {{"KUBE-FIREWALL", {drop}}},
  };
  const Chains not_in_place[] = {
      {{"INPUT", {accept_all, jump}}},
      {{"INPUT", {to_outer, jump}}, {"OUTER", {to_inner, accept}}, {"INNER", {accept, accept_all}}},
      {{"INPUT", {jump_for_some}}},
      {{"KUBE-FIREWALL", {accept_all, martians}}},
      {{"INPUT", {}}},
      {{"KUBE-FIREWALL", {}}},  // in IPv6 only
      {{"INPUT", {to_outer, jump}}, {"OUTER", {accept, drop}}},
      {{"INPUT", {unknown, jump}}},
  };
  const auto found = [](const Chains& chains) {
    Observed node = InPlace(Mode::kCleanup);
    node.Chain(Filter("KUBE-FIREWALL", Family::kIPv6), {DropMartians(0)});
    for (const auto& [name, rules] : chains) node.Chain(Filter(name), rules);
    return FindMartianProtection(node.snapshot()).in_place;
  };
  for (const Chains& chains : in_place) EXPECT_TRUE(found(chains)) << &chains - in_place;
  for (const Chains& chains : not_in_place) EXPECT_FALSE(found(chains)) << &chains - not_in_place;
  Observed unhooked = InPlace(Mode::kCleanup);
  unhooked.Chain(Filter("INPUT"), {jump}, /*hooked=*/false);
  EXPECT_FALSE(FindMartianProtection(unhooked.snapshot()).in_place);
  EXPECT_TRUE(FindMartianProtection(InPlace(Mode::kLegacy).snapshot()).in_place);
}

TEST(DropsEveryMartianTest, WhereNoneCanPassOnTheWay) {
  const RuleContent jump = JumpTo("KUBE-FIREWALL");
  const OpaqueRule drop_not_of_lo = {.text = "! -i lo -j DROP",
                                     .terminal = true,
                                     .drops = true,
                                     .all_known = true,
                                     .in_interface = netlink::InterfaceMatch{"lo", true}};
  const auto drops = [](const Chains& chains, const std::vector<Change>& changes = {}) {
    Observed node = InPlace(Mode::kCleanup);
    node.Chain(Filter("INPUT", Family::kIPv6), {ForeignAcceptAll()});
    for (const auto& [name, rules] : chains) node.Chain(Filter(name), rules);
    return DropsEveryMartian(node.snapshot(), changes);
  };
  EXPECT_TRUE(drops({}));
  EXPECT_TRUE(drops({{"INPUT", {JumpTo("X"), jump}}, {"X", {BareReturn(), ForeignAccept()}}}));
  EXPECT_FALSE(drops({{"INPUT", {OpaqueRule{.text = "[nft payload]"}, jump}}}));
  EXPECT_FALSE(drops({{"INPUT", {drop_not_of_lo}}})) << "lo may be another interface";
  const Observed whole = InPlace(Mode::kCleanup);
  const netlink::RuleHandle martian =
      whole.snapshot().Find(Filter("KUBE-FIREWALL"))->rules.front().handle;
  EXPECT_FALSE(drops(
      {}, {{netlink::DeleteRule{.chain = Filter("KUBE-FIREWALL"), .handle = martian, .rule = {}},
            ""}}));
  const Change of_ipv6 = {
      netlink::DeleteRule{
          .chain = Filter("KUBE-FIREWALL", Family::kIPv6), .handle = martian, .rule = {}},
      ""};
  const Change of_nat = {netlink::AddRule{.chain = Nat("INPUT"), .rule = BareReturn(), .before = 1},
                         ""};
  EXPECT_TRUE(drops({}, {of_ipv6, of_nat}));
  netlink::Rule return_of_some = BareReturn();
  return_of_some.source =
      netlink::PrefixMatch{.prefix = *netlink::ParsePrefix(Family::kIPv4, "10.0.0.0/8")};
  EXPECT_FALSE(drops({{"INPUT", {return_of_some, jump}}})) << "martians of 10.0.0.0/8 pass";
  for (const int jumps : {netlink::kDeepestJump, netlink::kDeepestJump + 1}) {
    Chains chains = {{"INPUT", {JumpTo("1")}}, {std::to_string(jumps), {DropMartians(0)}}};
    for (int i = 1; i < jumps; ++i) chains[std::to_string(i)] = {JumpTo(std::to_string(i + 1))};
    EXPECT_EQ(drops(chains), jumps == netlink::kDeepestJump);
  }
  netlink::Survey other;
  other.tables[{"ip6", "filter"}]["INPUT"] = {.base = true, .policy = "DROP"};
  EXPECT_EQ(WhoDropsMartians(other, /*lo_is_loopback=*/true), "");
}

TEST(MartianProtectionTest, IsAlsoTheNativeTableAsItMustBe) {
  Observed node;
  node.Native({.counters = {.packets = 3}});
  EXPECT_EQ(FindMartianProtection(node.snapshot()),
            (MartianProtection{.in_place = true, .dropped = 3, .dropped_natively = 3}));
  node.Native({.altered = true});
  EXPECT_FALSE(FindMartianProtection(node.snapshot()).in_place);
}

TEST(MartianProtectionTest, CountsWhatEveryRuleDropped) {
  netlink::Snapshot snapshot = InPlace(Mode::kCleanup).snapshot();
  auto& rules = snapshot.chains.at(Filter("KUBE-FIREWALL")).rules;
  rules[0].counters.packets = 5;
  rules.push_back(rules[0]);
  rules.push_back({.handle = 77, .content = BareDrop()});
  rules.back().counters.packets = 100;
  snapshot.native = {.counters = {.packets = 3}};
  EXPECT_EQ(FindMartianProtection(snapshot).dropped, 13U);
  EXPECT_EQ(FindMartianProtection(snapshot).dropped_natively, 3U);
}

TEST(MartianProtectionTest, IsNoneInATableThatIsDormant) {
  netlink::Snapshot snapshot = InPlace(Mode::kCleanup).snapshot();
  snapshot.dormant[{Family::kIPv6, netlink::Table::kFilter}] = netlink::kTableDormant;
  snapshot.dormant[{Family::kIPv4, netlink::Table::kNat}] = netlink::kTableDormant;
  EXPECT_TRUE(FindMartianProtection(snapshot).in_place);
  snapshot.dormant[{Family::kIPv4, netlink::Table::kFilter}] = netlink::kTableDormant;
  EXPECT_FALSE(FindMartianProtection(snapshot).in_place);
}

TEST(MartianProtectionTest, ExistsOnceASyncHasMadeIt) {
  SyncReport report;
  EXPECT_FALSE(MartianProtectionExists(report.plan.martians, report.applied));
  report.applied = ComputeDiff(Wanting(Mode::kCleanup, netlink::kFamilies, {}), {}).changes;
  EXPECT_TRUE(MartianProtectionExists(report.plan.martians, report.applied));
  report.families = {{Family::kIPv4, absl::UnknownError("no"), {netlink::Table::kMangle}}};
  EXPECT_TRUE(MartianProtectionExists(report.plan.martians, report.applied))
      << "another table was refused";
  report.plan.martians.dormant = true;
  EXPECT_FALSE(MartianProtectionExists(report.plan.martians, report.applied));
  report.applied.push_back({netlink::WakeTable{.chain = Filter("INPUT", Family::kIPv6)}, ""});
  EXPECT_FALSE(MartianProtectionExists(report.plan.martians, report.applied));
  report.applied.push_back({netlink::WakeTable{.chain = Filter("INPUT")}, ""});
  EXPECT_TRUE(MartianProtectionExists(report.plan.martians, report.applied));
  report.applied.clear();
  EXPECT_FALSE(MartianProtectionExists(report.plan.martians, report.applied));
  report.applied.push_back({netlink::PutNativeTable{NativeMartians()}, ""});
  EXPECT_TRUE(MartianProtectionExists(report.plan.martians, report.applied));
}

TEST(MartianProtectionTest, NeedsTheRuleAndTheWayToIt) {
  const auto add = [](const char* chain, const netlink::Rule& rule) {
    return Change{netlink::AddRule{.chain = Filter(chain), .rule = rule}, "why"};
  };
  const auto jump = [&](const char* chain, const char* to) { return add(chain, JumpTo(to)); };
  const MartianProtection rule = {.rule = true};
  const MartianProtection way = {.way = true};
  const struct {
    std::string name;
    MartianProtection found;
    std::vector<Change> applied;
    bool in_place;
  } rows[] = {
      {"both before", {.in_place = true}, {}, true},
      {"the rule alone", rule, {}, false},
      {"the way alone", way, {}, false},
      {"the rule, and now the way", rule, {jump("INPUT", "KUBE-FIREWALL")}, true},
      {"the rule, and a jump from elsewhere", rule, {jump("OUTPUT", "KUBE-FIREWALL")}, false},
      {"the rule, and a jump to elsewhere", rule, {jump("INPUT", "KUBE-FORWARD")}, false},
      {"the rule, and what is no jump", rule, {add("INPUT", BareDrop())}, false},
      {"the way, and now the rule", way, {add("KUBE-FIREWALL", DropMartians(0))}, true},
      {"the way, and the rule elsewhere", way, {add("KUBE-FORWARD", DropMartians(0))}, false},
      {"the way, and another rule", way, {add("KUBE-FIREWALL", DropMarked(15))}, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(MartianProtectionExists(row.found, row.applied), row.in_place) << row.name;
  }
}

TEST(ComputeDiffTest, ARuleOfXtablesProvesThatThereAreMatchesUnlessTheKernelRefusedOne) {
  const RuleSupport none = {.xt = false, .reason = "no nft_compat"};
  const RuleSupport refused = {.xt = false, .reason = "no nft_compat", .refused = true};
  netlink::Snapshot snapshot = InPlace(Mode::kCleanup).snapshot();
  const auto disproved = [&](const RuleSupport& support) {
    const PolicyInput input = Wanting(Mode::kCleanup, netlink::kFamilies, {});
    return ComputeDiff(input, snapshot, support).support_disproved;
  };
  EXPECT_FALSE(disproved(none));
  snapshot.chains.at(Filter("KUBE-FIREWALL")).rules[0].xt = true;
  EXPECT_TRUE(disproved(none));
  EXPECT_FALSE(disproved(refused));
  EXPECT_FALSE(disproved({}));
}

TEST(CountedSinceTest, AddsUpWhatWasDroppedBetweenChecks) {
  std::optional<uint64_t> seen;
  EXPECT_EQ(CountedSince(seen, 100), 0U) << "dropped before the first check";
  EXPECT_EQ(CountedSince(seen, 100), 0U);
  EXPECT_EQ(CountedSince(seen, 130), 30U);
  EXPECT_EQ(CountedSince(seen, 7), 7U) << "the rule was made anew";
  EXPECT_EQ(CountedSince(seen, 0), 0U);
  EXPECT_EQ(CountedSince(seen, 2), 2U);
}

}  // namespace
}  // namespace kipt::agent
