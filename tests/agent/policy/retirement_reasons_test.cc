// SPDX-License-Identifier: Apache-2.0
//
// What is said of what goes and of what stays; the native table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "agent/policy/retirement.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::Made;
using ::kipt::testing::Nat;
using ::kipt::testing::Observed;
using netlink::Family;

// The reasons of the chains that go.
std::set<std::string> WhyChainsGo(const Retirement& retirement) {
  std::set<std::string> reasons;
  for (const Change& change : retirement.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    reasons.insert(change.reason);
  }
  return reasons;
}

TEST(RetirementReasonsTest, SaysWhyAChainGoes) {
  using ::testing::ElementsAre;
  EXPECT_THAT(WhyChainsGo(PlanFor(Cleanup(), Residue())),
              ElementsAre("stale: not part of cleanup mode, and unused"));
  const PolicyInput off = ::kipt::testing::Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_THAT(WhyChainsGo(PlanFor(off, Residue(), {}, {.when_off = true})),
              ElementsAre("stale: kubelet's chains are not desired, and unused"));
}

TEST(RetirementReasonsTest, ANativeTableThatPendsUnsettlesIPv4Only) {
  Diff diff;
  diff.changes.push_back({netlink::PutNativeTable{NativeMartians()}, "put"});
  const PolicyInput desired = ::kipt::testing::Wanting(Mode::kCleanup, netlink::kFamilies, {});
  EXPECT_EQ(PlanRetirement(desired, {}, diff, {}, {}).unsettled,
            std::vector<Family>{Family::kIPv4});
}

TEST(RetirementReasonsTest, OnlyWhatGoesIsLeftOutOfWhatIsStale) {
  const netlink::ChainId masq = Nat("KUBE-MARK-MASQ");
  Retirement retirement;
  retirement.changes = {{netlink::DeleteChain{masq}, "why"}};
  retirement.kept = {{{Nat("KUBE-POSTROUTING"), "kept", "r"}, {{ClaimKind::kKubeProxy, "claim"}}}};
  const std::vector<ExistingItem> stale =
      WithClaims({{masq, ":KUBE-MARK-MASQ - [0:0]", "a"},
                  {masq, "another text", "b"},
                  {Nat("OTHER"), ":KUBE-MARK-MASQ - [0:0]", "c"},
                  {Nat("KUBE-POSTROUTING"), "kept", "d"},
                  {Nat("KUBE-POSTROUTING"), "not kept", "e"},
                  {Nat("OTHER"), "kept", "f"}},
                 retirement);
  std::vector<std::string> reasons;
  for (const ExistingItem& one : stale) reasons.push_back(one.reason);
  EXPECT_EQ(reasons, (std::vector<std::string>{"b", "c", "stale, kept: claim", "e", "f"}));
}

TEST(RetirementReasonsTest, TheNativeTableThatGoesIsOursAndOfModeOff) {
  const PolicyInput off = ::kipt::testing::Wanting(Mode::kOff, kIPv4Only, {});
  const Diff diff = ComputeDiff(off, Observed().Native().snapshot());
  ASSERT_EQ(diff.stale.size(), 1);
  const RetirementOptions options = {.when_off = true};
  Dependents dependents;
  const auto taken = std::get<netlink::DeleteNativeTable>(
      PlanRetirement(off, {}, diff, dependents, options).changes.at(0).operation);
  EXPECT_EQ(taken.family, Family::kIPv4);
  EXPECT_EQ(taken.name, kNativeTable);
  EXPECT_EQ(ToTransaction(PlanRetirement(off, {}, diff, dependents, options).changes, 1)
                .operations.size(),
            1U);
  Diff with_more = diff;
  with_more.stale.push_back({Nat("KUBE-MARK-MASQ"), ":KUBE-MARK-MASQ - [0:0]", "stale, kept"});
  EXPECT_EQ(PlanRetirement(off, {}, with_more, dependents, options).changes.size(), 1U);
  dependents.route_localnet.interfaces = {"eth0"};
  EXPECT_TRUE(PlanRetirement(off, {}, diff, dependents, options).empty());
  // Of a family that is managed, sync takes it; of one that is not, nobody does.
  dependents.route_localnet = {};
  const Family six[] = {Family::kIPv6};
  for (const Mode mode : {Mode::kCleanup, Mode::kLegacy, Mode::kOff}) {
    const PolicyInput of_six = ::kipt::testing::Wanting(mode, six, {});
    EXPECT_TRUE(PlanRetirement(of_six, {}, diff, dependents, options).empty());
  }
  EXPECT_TRUE(PlanRetirement(Cleanup(), {}, diff, dependents, options).empty());
  EXPECT_TRUE(PlanRetirement(Legacy(), {}, diff, dependents, options).empty());
}

}  // namespace
}  // namespace kipt::agent
