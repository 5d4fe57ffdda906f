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
  return plan.ok() ? ToRestoreText(*plan, Family::kIPv4) : "";
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
