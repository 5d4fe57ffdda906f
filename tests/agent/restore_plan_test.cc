// SPDX-License-Identifier: Apache-2.0
//
// What tests/kernel/backend_contract_test.cc cannot say of every backend: how the plan reads. The
// refusals that all backends share are held there.
#include "agent/xtables/restore_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::ObservedChains;
using agent::PlanRestore;
using netlink::AddRule;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteChain;
using netlink::DeleteRule;
using netlink::Family;
using netlink::Operation;
using netlink::Rule;
using ::testing::HasSubstr;

std::string Plan(const Observed& observed, std::vector<Operation> operations) {
  const absl::StatusOr<netlink::Transaction> plan =
      PlanRestore(observed.snapshot().chains, {.generation = 1, .operations = operations},
                  {.random_fully = true});
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? agent::RestoreText(*plan, Family::kIPv4) : "";
}

absl::Status Refusal(const Observed& observed, std::vector<Operation> operations) {
  return PlanRestore(observed.snapshot().chains, {.generation = 1, .operations = operations},
                     {.random_fully = true})
      .status();
}

TEST(RestorePlanTest, DoesNotDeclareAChainThatExistsBecauseThatWouldEmptyIt) {
  EXPECT_EQ(Plan(Observed().Chain(Filter("A"), {BareDrop()}),
                 {CreateChain{Filter("A")}, CreateChain{Filter("B")}, CreateChain{Filter("B")}}),
            "*filter\n:B - [0:0]\nCOMMIT\n");
}

TEST(RestorePlanTest, WritesMarksAfterTheDropOfWhatIsMarkedAndRemovesThemBefore) {
  EXPECT_EQ(
      Plan(Observed(), {CreateChain{Nat("N")}, CreateChain{Filter("F")}, CreateChain{Mangle("M")}}),
      "*mangle\n:M - [0:0]\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n*nat\n:N - [0:0]\nCOMMIT\n");
  EXPECT_EQ(Plan(Observed().Chain(Nat("N")).Chain(Filter("F")).Chain(Mangle("M")),
                 {DeleteChain{Mangle("M")}, DeleteChain{Filter("F")}, DeleteChain{Nat("N")}}),
            "*nat\n-X N\nCOMMIT\n*filter\n-X F\nCOMMIT\n*mangle\n-X M\nCOMMIT\n");
}

// Else what nat marks with the old bit, until nat has its turn, would not be dropped any more.
TEST(RestorePlanTest, KeepsTheDropOfAnOldMarkUntilNothingGetsThatMarkAnyMore) {
  const auto marked = [](uint32_t bit) {
    Rule rule = BareDrop();
    rule.mark = netlink::MarkMatch{.value = bit, .mask = bit, .negated = false};
    return rule;
  };
  const auto sets = [](uint32_t bit) { return Rule{.target = netlink::SetMark{bit, bit}}; };
  const Observed observed =
      Observed().Chain(Filter("F"), {marked(1)}).Chain(Nat("N"), {sets(1)});  // handles 1 and 2
  const DeleteRule old_drop{.chain = Filter("F"), .handle = 1, .rule = marked(1)};
  const AddRule new_drop{.chain = Filter("F"), .rule = marked(2)};
  const DeleteRule old_mark{.chain = Nat("N"), .handle = 2, .rule = sets(1)};
  const AddRule new_mark{.chain = Nat("N"), .rule = sets(2)};
  EXPECT_EQ(Plan(observed, {old_mark, new_mark, old_drop, new_drop}),
            "*filter\n-A F -m mark --mark 0x2/0x2 -j DROP\nCOMMIT\n"
            "*nat\n-D N 1\n-A N -j MARK --set-xmark 0x2/0x2\nCOMMIT\n"
            "*filter\n-D F 1\nCOMMIT\n");
  // Where nat stays as it is there is nothing to wait for.
  EXPECT_EQ(Plan(observed, {old_drop, new_drop}),
            "*filter\n-D F 1\n-A F -m mark --mark 0x2/0x2 -j DROP\nCOMMIT\n");
}

TEST(RestorePlanTest, IsWrittenForOneFamilyAtATime) {
  const ChainId other = {.family = Family::kIPv6, .table = netlink::Table::kFilter, .name = "F"};
  const netlink::Transaction plan{
      .operations = {CreateChain{Filter("F")}, CreateChain{other}, CreateChain{Nat("N")}}};
  EXPECT_EQ(agent::RestoreText(plan, Family::kIPv4),
            "*filter\n:F - [0:0]\nCOMMIT\n*nat\n:N - [0:0]\nCOMMIT\n");
  EXPECT_EQ(agent::RestoreText(plan, Family::kIPv6), "*filter\n:F - [0:0]\nCOMMIT\n");
}

TEST(RestorePlanTest, CountsRulesAsTheyAreWhenTheirTurnComes) {
  const Rule a = BareDrop("a");
  const Rule b = BareDrop("b");
  const Rule c = BareDrop("c");
  // Handles 1, 2, 3.
  EXPECT_EQ(Plan(Observed().Chain(Filter("X"), {a, b, c}),
                 {DeleteRule{.chain = Filter("X"), .handle = 1, .number = 99, .rule = a},
                  AddRule{.chain = Filter("X"), .rule = BareReturn(), .before = 3, .number = 99},
                  DeleteRule{.chain = Filter("X"), .handle = 3, .number = 99, .rule = c}}),
            "*filter\n-D X 1\n-I X 2 -j RETURN\n-D X 3\nCOMMIT\n");
}

TEST(RestorePlanTest, RefusesToDeleteAnotherRuleThanTheOneMeant) {
  const Observed observed = Observed().Chain(Filter("X"), {BareDrop("a"), ForeignAccept()});
  EXPECT_THAT(
      Refusal(observed, {DeleteRule{.chain = Filter("X"), .handle = 1, .rule = BareDrop()}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another rule stands there")));
  EXPECT_THAT(
      Refusal(observed, {DeleteRule{.chain = Filter("X"), .handle = 2, .rule = BareDrop()}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-p tcp -j ACCEPT")));
}

TEST(RestorePlanTest, RefusesNamesAndCommentsThatWouldReadAsSomethingElse) {
  for (const std::string name : {"", "-X", "!X", "A B", "A\nCOMMIT", "A\"", "DROP", "RETURN",
                                 "ABCDEFGHIJABCDEFGHIJABCDEFGHI"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(Refusal(Observed(), {CreateChain{Filter(name)}}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Refusal(Observed(), {CreateChain{Filter("ABCDEFGHIJABCDEFGHIJABCDEFGH")}}), IsOk());
  EXPECT_THAT(Refusal(Observed().Chain(Filter("X")),
                      {AddRule{.chain = Filter("X"), .rule = BareDrop("a\n-F INPUT")}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("control character")));
}

TEST(RestorePlanTest, WritesLabelsAsIptablesRestoreTakesThem) {
  const Rule sets{.conn_label = netlink::ConnLabelMatch{.label = 114, .set = true},
                  .target = netlink::NoTarget{}};
  const Rule tests{.conn_label = netlink::ConnLabelMatch{.label = 115, .negated = true}};
  EXPECT_EQ(Plan(Observed().Chain(Nat("N"), {sets, BareReturn()}).Chain(Filter("F")),
                 {AddRule{.chain = Nat("N"), .rule = sets},
                  AddRule{.chain = Nat("N"), .rule = sets, .before = 2},
                  DeleteRule{.chain = Nat("N"), .handle = 1, .rule = sets},
                  AddRule{.chain = Filter("F"), .rule = tests}}),
            "*filter\n-A F -m connlabel ! --label \"115\" -j DROP\nCOMMIT\n"
            "*nat\n-A N -m connlabel --label \"114\" --set\n"
            "-I N 2 -m connlabel --label \"114\" --set\n-D N 1\nCOMMIT\n");
}

TEST(RestorePlanTest, RefusesToDeleteAChainAndMakeItAgain) {
  EXPECT_THAT(
      Refusal(Observed().Chain(Filter("X")), {DeleteChain{Filter("X")}, CreateChain{Filter("X")}}),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace kipt::testing
