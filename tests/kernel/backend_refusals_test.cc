// SPDX-License-Identifier: Apache-2.0
//
// What every Backend refuses, with which code, and that nothing has been done then.
#include <string>
#include <vector>

#include "tests/kernel/backend_world.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteChain;
using netlink::DeleteRule;
using netlink::Family;
using netlink::Jump;
using netlink::Masquerade;
using netlink::Rule;
using netlink::Snapshot;
using netlink::Table;
using netlink::Transaction;

class BackendRefusalTest : public BackendContractTest {};
class UnhookedChainTest : public BackendContractTest {};

TEST_P(BackendRefusalTest, RefusesToDeleteAChainThatIsJumpedTo) {
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}, Append(kUser, jump_)}), IsOk());
  EXPECT_THAT(Apply({DeleteChain{kOther}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ip filter OTHER")));
  EXPECT_THAT(Rules(kOther), IsEmpty());
}

TEST_P(BackendRefusalTest, RefusesToDeleteAChainThatAForeignRuleJumpsTo) {
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}}), IsOk());
  world().AppendOpaqueJump("USER");
  EXPECT_THAT(Apply({DeleteChain{kOther}}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_P(BackendRefusalTest, RefusesToDeleteAChainThatIsNotEmpty) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  EXPECT_THAT(Apply({DeleteChain{kUser}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ip filter USER")));
  EXPECT_EQ(Rules(kUser).size(), 1U);
}

TEST_P(BackendRefusalTest, RefusesToDeleteABaseChain) {
  ASSERT_THAT(Apply({CreateChain{kInput}}), IsOk());
  EXPECT_THAT(Apply({DeleteChain{kInput}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ip filter INPUT")));
  EXPECT_THAT(Rules(kInput), IsEmpty());
}

TEST_P(BackendRefusalTest, RefusesToDeleteWhatIsNotThere) {
  EXPECT_THAT(Apply({DeleteChain{kUser}}), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  EXPECT_THAT(Apply({DeleteChain{kOther}}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Apply({DeleteRule{.chain = kUser, .handle = 4711, .number = 1, .rule = drop_}}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("ip filter USER"), HasSubstr("drop it"))));
}

TEST_P(BackendRefusalTest, AbortsOnAStaleGenerationAndDoesNothing) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  const Snapshot old = Read();
  world().Touch();
  EXPECT_NE(Read().generation, old.generation);
  EXPECT_THAT(backend().Apply(
                  Transaction{.generation = old.generation, .operations = {Append(kUser, drop_)}}),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Rules(kUser), IsEmpty());
}

TEST_P(BackendRefusalTest, RefusesAJumpToNothingAndNamesEverything) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  const Rule rule{.comment = "to nowhere", .target = Jump{"NOWHERE"}};
  EXPECT_THAT(Apply({Append(kUser, rule)}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("ip filter USER"), HasSubstr("to nowhere"),
                             HasSubstr("there is no chain NOWHERE to jump to"))));
  EXPECT_THAT(Rules(kUser), IsEmpty());
}

TEST_P(BackendRefusalTest, RefusesTheWholeTransactionForOneOperation) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  const Snapshot before = Read();
  EXPECT_THAT(
      Apply({Append(kUser, return_), CreateChain{kNat},
             DeleteRule{.chain = kUser, .handle = HandleOf(kUser, 0), .number = 1, .rule = drop_},
             Append(kUser, jump_)}),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Read(), before);
}

TEST_P(BackendRefusalTest, RefusesMasqueradeOutsideNat) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  EXPECT_THAT(Apply({Append(kUser, Rule{.target = Masquerade{true}})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("MASQUERADE")));
}

TEST_P(BackendRefusalTest, RefusesARuleInAChainOrBeforeARuleThatIsNotThere) {
  EXPECT_THAT(Apply({Append(kUser, drop_)}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("ip filter USER")));
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}, Append(kOther, drop_)}), IsOk());
  EXPECT_THAT(Apply({Append(kNat, drop_)}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Apply({InsertBefore(kUser, 4711, drop_)}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Apply({InsertBefore(kUser, HandleOf(kOther, 0), drop_)}),
              StatusIs(absl::StatusCode::kNotFound))
      << "a handle of another chain";
}

TEST_P(BackendRefusalTest, RefusesJumpsInACircle) {
  ASSERT_THAT(Apply({CreateChain{kInput}, CreateChain{kUser}, CreateChain{kOther},
                     Append(kInput, jump_), Append(kOther, Rule{.target = Jump{"USER"}})}),
              IsOk());
  EXPECT_THAT(Apply({Append(kUser, jump_)}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Rules(kUser), IsEmpty());
}

TEST_P(BackendRefusalTest, RefusesAJumpToABaseChain) {
  ASSERT_THAT(Apply({CreateChain{kInput}, CreateChain{kUser}}), IsOk());
  EXPECT_THAT(Apply({Append(kUser, Rule{.target = Jump{"INPUT"}})}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_P(BackendRefusalTest, RefusesTextsThatCannotBeWritten) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  EXPECT_THAT(Apply({Append(kUser, Rule{.comment = std::string(256, 'x')})}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Apply({Append(kUser, Rule{.comment = std::string(255, 'x')})}), IsOk());
  EXPECT_THAT(Apply({CreateChain{ChainId{Family::kIPv4, Table::kFilter, ""}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Apply({CreateChain{ChainId{Family::kIPv4, Table::kFilter, std::string(256, 'x')}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(BackendRefusalTest, RefusesALabelThatTheKernelDoesNotHaveAndARuleThatDoesNothing) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  for (const Rule& rule :
       {Rule{.conn_label = netlink::ConnLabelMatch{.label = 128}},
        Rule{.conn_label = netlink::ConnLabelMatch{.label = 255, .set = true},
        .target = netlink::NoTarget{}},
        Rule{.conn_label = netlink::ConnLabelMatch{.label = 1}, .target = netlink::NoTarget{}},
        Rule{.target = netlink::NoTarget{}}}) {
    EXPECT_THAT(Apply({Append(kUser, rule)}), StatusIs(absl::StatusCode::kInvalidArgument))
        << ToString(Family::kIPv4, rule);
  }
  EXPECT_THAT(Rules(kUser), IsEmpty());
}

TEST_P(UnhookedChainTest, TellsAnUnhookedChainOfABaseChainsNameAndRefusesToMakeIt) {
  world().AddUnhookedInput();
  const Snapshot snapshot = Read();
  ASSERT_NE(snapshot.Find(kInput), nullptr);
  EXPECT_FALSE(snapshot.Find(kInput)->hooked);
  EXPECT_THAT(Apply({CreateChain{kInput}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ip filter INPUT")));
  EXPECT_FALSE(Read().Find(kInput)->hooked);
}

TEST_P(BackendRefusalTest, TakesAnEmptyTransactionOfAnyGeneration) {
  const Snapshot before = Read();
  EXPECT_THAT(backend().Apply(Transaction{.generation = before.generation + 9, .operations = {}}),
              IsOk());
  EXPECT_EQ(Read(), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendRefusalTest, ::testing::ValuesIn(AllSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });
INSTANTIATE_TEST_SUITE_P(Backends, UnhookedChainTest,
                         ::testing::ValuesIn(SubjectsWithUnhookedChains()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace kipt::testing
