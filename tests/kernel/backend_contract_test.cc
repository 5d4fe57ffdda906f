// SPDX-License-Identifier: Apache-2.0
//
// What every Backend promises, tested on the fake, nf_tables and legacy iptables, so that tests on
// the fake are meaningful.
#include "tests/kernel/backend_world.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

TEST_P(BackendContractTest, ReadsNothingWhereNothingIsAndMakesNothing) {
  const Snapshot first = Read();
  EXPECT_THAT(first.chains, IsEmpty());
  const Snapshot second = Read();
  EXPECT_EQ(second, first) << "a read moved the ruleset";
}

TEST_P(BackendContractTest, CreatesChainsInBothFamiliesAndAllTablesAtOnce) {
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kUser6}, CreateChain{kNat},
                     CreateChain{kMangle}, CreateChain{kInput}}),
              IsOk());
  const Snapshot snapshot = Read();
  for (const ChainId& chain : {kUser, kUser6, kNat, kMangle, kInput}) {
    ASSERT_NE(snapshot.Find(chain), nullptr) << ToString(chain);
    EXPECT_THAT(snapshot.Find(chain)->rules, IsEmpty());
  }
  EXPECT_EQ(snapshot.Find(kOther), nullptr);
  EXPECT_TRUE(snapshot.Find(kInput)->hooked);
  EXPECT_FALSE(snapshot.Find(kUser)->hooked);
}

TEST_P(BackendContractTest, LeavesAnExistingChainUnchanged) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_), CreateChain{kInput}}), IsOk());
  const Snapshot before = Read();
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kInput}}), IsOk());
  EXPECT_EQ(Read().chains, before.chains);
}

TEST_P(BackendContractTest, ReadsBackEveryKindOfRule) {
  const netlink::Prefix loopback = *netlink::ParsePrefix(Family::kIPv4, "127.0.0.0/8");
  const Rule martian{.source = netlink::PrefixMatch{loopback, true},
                     .destination = netlink::PrefixMatch{loopback},
                     .comment = "martian packets",
                     .ct_state = netlink::CtStateMatch{netlink::kCtEstablished, true},
                     .target = Drop{}};
  const Rule mark{.target = SetMark{0x4000, 0}};
  const Rule masquerade{.comment = "snat", .target = Masquerade{true}};
  const Rule set_label{
      .conn_label = netlink::ConnLabelMatch{.label = 127, .set = true, .negated = true},
      .target = netlink::NoTarget{}};
  const Rule label{.mark = netlink::MarkMatch{1, 1},
                   .ct_state = netlink::CtStateMatch{netlink::kCtNew},
                   .conn_label = netlink::ConnLabelMatch{.label = 1, .negated = true},
                   .target = SetMark{1, 1}};
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}, CreateChain{kNat},
                     CreateChain{kUser6}, Append(kUser, martian), Append(kUser, return_),
                     Append(kUser, jump_), Append(kNat, mark), Append(kNat, masquerade),
                     Append(kNat, set_label), Append(kUser6, label)}),
              IsOk());
  const Snapshot snapshot = Read();
  const auto rules = [&](const ChainId& chain) {
    std::vector<Rule> found;
    for (const ObservedRule& rule : snapshot.Find(chain)->rules) {
      EXPECT_NE(rule.rule(), nullptr) << ToString(chain.family, rule);
      if (rule.rule() != nullptr) found.push_back(*rule.rule());
    }
    return found;
  };
  EXPECT_EQ(rules(kUser), (std::vector<Rule>{martian, return_, jump_}));
  EXPECT_EQ(rules(kNat), (std::vector<Rule>{mark, masquerade, set_label}));
  EXPECT_EQ(rules(kUser6), (std::vector<Rule>{label}));
}

TEST_P(BackendContractTest, InsertsBeforeAHandleAndAppendsAtTheEnd) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  ASSERT_THAT(Apply({InsertBefore(kUser, HandleOf(kUser, 0), return_), Append(kUser, return_)}),
              IsOk());
  const std::string drop = ToString(Family::kIPv4, drop_);
  const std::string ret = ToString(Family::kIPv4, return_);
  EXPECT_THAT(Rules(kUser), ElementsAre(ret, drop, ret));
  ASSERT_THAT(Apply({InsertBefore(kUser, HandleOf(kUser, 1), drop_)}), IsOk());
  EXPECT_THAT(Rules(kUser), ElementsAre(ret, drop, drop, ret));
}

TEST_P(BackendContractTest, AppliesOperationsInTheirOrder) {
  ASSERT_THAT(Apply({CreateChain{kInput}, CreateChain{kOther}, Append(kOther, drop_),
                     Append(kInput, jump_)}),
              IsOk());
  EXPECT_THAT(Rules(kInput), ElementsAre("-j OTHER"));
  // A jump before the chain it jumps to is a jump to nothing.
  EXPECT_THAT(Apply({CreateChain{kUser6}, Append(kUser6, jump_),
                     CreateChain{ChainId{Family::kIPv6, Table::kFilter, "OTHER"}}}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BackendContractTest, DeletesExactlyTheRuleOfTheHandle) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_), Append(kUser, return_),
                     Append(kUser, drop_)}),
              IsOk());
  const RuleHandle last = HandleOf(kUser, 2);
  ASSERT_THAT(Apply({DeleteRule{.chain = kUser, .handle = last, .number = 3, .rule = drop_}}),
              IsOk());
  EXPECT_THAT(Rules(kUser),
              ElementsAre(ToString(Family::kIPv4, drop_), ToString(Family::kIPv4, return_)));
}

TEST_P(BackendContractTest, RemovesAJumpItsChainsRulesAndTheChainAtOnce) {
  ASSERT_THAT(Apply({CreateChain{kInput}, CreateChain{kOther}, Append(kOther, drop_),
                     Append(kInput, jump_)}),
              IsOk());
  ASSERT_THAT(
      Apply({DeleteRule{.chain = kInput, .handle = HandleOf(kInput, 0), .number = 1, .rule = jump_},
             DeleteRule{.chain = kOther, .handle = HandleOf(kOther, 0), .number = 1, .rule = drop_},
             DeleteChain{kOther}}),
      IsOk());
  EXPECT_THAT(Rules(kInput), IsEmpty());
  EXPECT_THAT(Rules(kOther), ElementsAre("absent"));
}

TEST_P(BackendContractTest, MovesTheGenerationWithItsOwnTransactions) {
  const Snapshot old = Read();
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  EXPECT_NE(Read().generation, old.generation);
  EXPECT_THAT(
      backend().Apply(Transaction{.generation = old.generation, .operations = {CreateChain{kNat}}}),
      StatusIs(absl::StatusCode::kAborted));
}

TEST_P(BackendContractTest, ReadsNoRulesWhenAskedForExistenceOnly) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  const absl::StatusOr<Snapshot> snapshot =
      backend().Read({ChainQuery{.chain = kUser, .with_rules = false},
                      ChainQuery{.chain = kOther, .with_rules = false}});
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_NE(snapshot->Find(kUser), nullptr);
  EXPECT_THAT(snapshot->Find(kUser)->rules, IsEmpty());
  EXPECT_EQ(snapshot->Find(kOther), nullptr);
}

TEST_P(BackendContractTest, ReadsTheSameTornWhereNoProgramWrites) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_), CreateChain{kUser6}}), IsOk());
  const std::vector<ChainQuery> queries = {
      {.chain = kUser, .follow = true}, {.chain = kUser6}, {.chain = kOther}};
  const absl::StatusOr<Snapshot> whole = backend().Read(queries);
  const absl::StatusOr<Snapshot> torn = backend().ReadTorn(queries, nullptr);
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(torn, IsOk());
  EXPECT_EQ(torn->chains, whole->chains);
  EXPECT_EQ(torn->dormant, whole->dormant);
}

TEST_P(BackendContractTest, ReadsAChainOnceThatIsAskedForTwice) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  EXPECT_EQ(Read({kUser, kUser}).Find(kUser)->rules.size(), 1U);
}

TEST_P(BackendContractTest, LeavesForeignRulesAloneAndShowsTheirJump) {
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}}), IsOk());
  world().AppendOpaqueJump("USER");
  const Snapshot before = Read({kUser});
  ASSERT_EQ(before.Find(kUser)->rules.size(), 1U);
  const ObservedRule foreign = before.Find(kUser)->rules[0];
  ASSERT_NE(foreign.opaque(), nullptr);
  EXPECT_EQ(foreign.opaque()->text, world().OpaqueJumpText());
  EXPECT_EQ(foreign.opaque()->jump, "OTHER");
  EXPECT_FALSE(foreign.opaque()->unconditional);
  EXPECT_TRUE(foreign.opaque()->decides);
  EXPECT_FALSE(foreign.opaque()->terminal);

  ASSERT_THAT(Apply({InsertBefore(kUser, foreign.handle, drop_), Append(kUser, return_)}), IsOk());
  const Snapshot after = Read({kUser});
  ASSERT_EQ(after.Find(kUser)->rules.size(), 3U);
  // Its handle may be another at another generation.
  EXPECT_EQ(after.Find(kUser)->rules[1].content, foreign.content);
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendContractTest, ::testing::ValuesIn(AllSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });

class BackendRefusalTest : public BackendContractTest {};
class UnhookedChainTest : public BackendContractTest {};

// Where INPUT leads to OTHER, and OTHER to USER, which is empty; THIRD has a rule.
TEST_P(BackendRefusalTest, RefusesOneOperationNamesItAndDoesNothing) {
  using Code = absl::StatusCode;
  const ChainId third{Family::kIPv4, Table::kFilter, "THIRD"};
  const Rule to_user{.target = Jump{"USER"}};
  ASSERT_THAT(
      Apply({CreateChain{kInput}, CreateChain{kUser}, CreateChain{kOther}, CreateChain{third},
             Append(kInput, jump_), Append(kOther, to_user), Append(third, drop_)}),
      IsOk());
  const auto chain = [](const std::string& name) {
    return CreateChain{ChainId{Family::kIPv4, Table::kFilter, name}};
  };
  const auto label = [&](const netlink::ConnLabelMatch& match, const netlink::Target& target) {
    return Append(kUser, Rule{.conn_label = match, .target = target});
  };
  const Rule nowhere{.comment = "to nowhere", .target = Jump{"NOWHERE"}};
  const DeleteRule no_rule{.chain = kUser, .handle = 4711, .number = 1, .rule = drop_};
  struct Row {
    const char* name;
    Operation operation;
    Code code;
    std::vector<std::string> words = {};
  };
  const std::vector<Row> rows = {
      {"a chain that is jumped to", DeleteChain{kUser}, Code::kFailedPrecondition,
       List("ip filter USER")},
      {"a chain that is not empty", DeleteChain{third}, Code::kFailedPrecondition,
       List("ip filter THIRD")},
      {"a base chain", DeleteChain{kInput}, Code::kInvalidArgument, List("ip filter INPUT")},
      {"a chain that is not there", DeleteChain{kNat}, Code::kNotFound},
      {"a rule that is not there", no_rule, Code::kNotFound, List("ip filter USER", "drop it")},
      {"a jump to nothing", Append(kUser, nowhere), Code::kNotFound,
       List("ip filter USER", "to nowhere", "there is no chain NOWHERE to jump to")},
      {"jumps in a circle", Append(kUser, jump_), Code::kFailedPrecondition},
      {"a jump to a base chain", Append(third, Rule{.target = Jump{"INPUT"}}),
       Code::kFailedPrecondition},
      {"masquerading outside of nat", Append(kUser, Rule{.target = Masquerade{true}}),
       Code::kInvalidArgument, List("MASQUERADE")},
      {"a rule of a chain that is not there", Append(kNat, drop_), Code::kNotFound,
       List("ip nat NATUSER")},
      {"before a rule that is not there", InsertBefore(kUser, 4711, drop_), Code::kNotFound},
      {"before a rule of another chain", InsertBefore(kUser, HandleOf(third, 0), drop_),
       Code::kNotFound},
      {"a long comment", Append(kUser, Rule{.comment = std::string(256, 'x')}),
       Code::kInvalidArgument},
      {"a chain without a name", chain(""), Code::kInvalidArgument},
      {"a chain of a long name", chain(std::string(256, 'x')), Code::kInvalidArgument},
      {"a label that the kernel does not have", label({.label = 128}, Drop{}),
       Code::kInvalidArgument},
      {"the same, set", label({.label = 255, .set = true}, netlink::NoTarget{}),
       Code::kInvalidArgument},
      {"a label that is tested for nothing", label({.label = 1}, netlink::NoTarget{}),
       Code::kInvalidArgument},
      {"a rule that does nothing", Append(kUser, Rule{.target = netlink::NoTarget{}}),
       Code::kInvalidArgument},
  };
  const Snapshot before = Read({kInput, kUser, kOther, third, kNat});
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const absl::Status status = Apply({row.operation});
    EXPECT_EQ(status.code(), row.code) << status;
    for (const std::string& word : row.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
    EXPECT_EQ(Read({kInput, kUser, kOther, third, kNat}), before);
  }
  EXPECT_THAT(Apply({Append(kUser, Rule{.comment = std::string(255, 'x')})}), IsOk());
}

TEST_P(BackendRefusalTest, RefusesToDeleteAChainThatAForeignRuleJumpsTo) {
  ASSERT_THAT(Apply({CreateChain{kUser}, CreateChain{kOther}}), IsOk());
  world().AppendOpaqueJump("USER");
  EXPECT_THAT(Apply({DeleteChain{kOther}}), StatusIs(absl::StatusCode::kFailedPrecondition));
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

TEST_P(UnhookedChainTest, ReportsAnUnhookedChainOfABaseChainsNameAndRefusesToMakeIt) {
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
INSTANTIATE_TEST_SUITE_P(Backends, UnhookedChainTest, ::testing::ValuesIn(NftSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace kipt::testing
