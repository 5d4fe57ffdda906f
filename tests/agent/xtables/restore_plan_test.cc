// SPDX-License-Identifier: Apache-2.0
//
// The text of the plan, which only iptables-legacy has. tests/kernel/backend_contract_test.cc has
// the refusals that all backends share.
#include "agent/xtables/restore_plan.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_save.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing::restore_plan_test {
namespace {

using agent::PlanRestore;
using agent::SavedSelection;
using agent::SavedTable;
using netlink::Rule;
using namespace netlink;  // NOLINT(google-build-using-namespace): the vocabulary of operations

std::string Plan(const Observed& observed, std::vector<Operation> operations) {
  const absl::StatusOr<netlink::Transaction> plan =
      PlanRestore(observed.snapshot().chains, {.generation = 1, .operations = operations},
                  /*random_fully=*/true);
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? agent::RestoreText(*plan, Family::kIPv4) : "";
}

absl::Status Refusal(const Observed& observed, std::vector<Operation> operations) {
  return PlanRestore(observed.snapshot().chains, {.generation = 1, .operations = operations},
                     /*random_fully=*/true)
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
  EXPECT_EQ(Plan(observed, {old_drop, new_drop, old_mark, new_mark}),
            Plan(observed, {old_mark, new_mark, old_drop, new_drop}));
  // A transaction that ended between two commits has added the new drop.
  EXPECT_EQ(Plan(observed, {old_drop, old_mark, new_mark}),
            "*nat\n-D N 1\n-A N -j MARK --set-xmark 0x2/0x2\nCOMMIT\n"
            "*filter\n-D F 1\nCOMMIT\n");
  // If nat is unchanged there is nothing to wait for.
  EXPECT_EQ(Plan(observed, {old_drop, new_drop}),
            "*filter\n-D F 1\n-A F -m mark --mark 0x2/0x2 -j DROP\nCOMMIT\n");
  EXPECT_EQ(Plan(Observed(observed).Chain(Mangle("M")),
                 {old_drop, new_drop, AddRule{.chain = Mangle("M"), .rule = BareDrop()}}),
            "*mangle\n-A M -j DROP\nCOMMIT\n"
            "*filter\n-D F 1\n-A F -m mark --mark 0x2/0x2 -j DROP\nCOMMIT\n");
}

TEST(RestorePlanTest, IsWrittenForOneFamilyAtATime) {
  const ChainId other = {.family = Family::kIPv6, .table = netlink::Table::kFilter, .name = "F"};
  const netlink::Transaction plan{
      .operations = {CreateChain{Filter("F")}, CreateChain{other}, CreateChain{Nat("N")}}};
  EXPECT_EQ(agent::RestoreText(plan, Family::kIPv4),
            "*filter\n:F - [0:0]\nCOMMIT\n*nat\n:N - [0:0]\nCOMMIT\n");
  EXPECT_EQ(agent::RestoreText(plan, Family::kIPv6), "*filter\n:F - [0:0]\nCOMMIT\n");
  const netlink::Transaction interrupted{.operations = {CreateChain{Filter("F")},
                                                        CreateChain{Nat("N", Family::kIPv6)},
                                                        CreateChain{Filter("G")}}};
  EXPECT_EQ(agent::RestoreText(interrupted, Family::kIPv4),
            "*filter\n:F - [0:0]\n:G - [0:0]\nCOMMIT\n");
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
  EXPECT_EQ(Plan(Observed().Chain(Filter("X"), {a}),
                 {AddRule{.chain = Filter("X"), .rule = BareReturn(), .before = 1},
                  DeleteRule{.chain = Filter("X"), .handle = 1, .rule = a}}),
            "*filter\n-I X 1 -j RETURN\n-D X 2\nCOMMIT\n")
      << "a new rule has no handle";
}

TEST(RestorePlanTest, RefusesToDeleteAnotherRuleThanTheOneMeant) {
  const Observed observed = Observed().Chain(Filter("X"), {BareDrop("a"), ForeignAccept()});
  EXPECT_THAT(
      Refusal(observed, {DeleteRule{.chain = Filter("X"), .handle = 1, .rule = BareDrop()}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another rule is there")));
  EXPECT_THAT(
      Refusal(observed, {DeleteRule{.chain = Filter("X"), .handle = 2, .rule = BareDrop()}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-p tcp -j ACCEPT")));
}

TEST(RestorePlanTest, RefusesNamesAndCommentsThatWouldReadAsSomethingElse) {
  for (const std::string name : {"", "-X", "!X", "A B", "A\nCOMMIT", "A\"", "ACCEPT", "DROP",
                                 "QUEUE", "RETURN", "ABCDEFGHIJABCDEFGHIJABCDEFGHI"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(Refusal(Observed(), {CreateChain{Filter(name)}}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Refusal(Observed(), {CreateChain{Filter("ABCDEFGHIJABCDEFGHIJABCDEFGH")}}), IsOk());
  EXPECT_THAT(Refusal(Observed().Chain(Filter("X")),
                      {AddRule{.chain = Filter("X"), .rule = BareDrop("a\n-F INPUT")}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("control character")));
}

// Beyond what BackendRefusalTest tries on every backend.
TEST(RestorePlanTest, RefusesWhatTheKernelOrIptablesRestoreWouldRefuse) {
  using Code = absl::StatusCode;
  const ChainId ipv6 = Filter("X", Family::kIPv6);
  const struct {
    std::string name;
    Observed observed;
    Operation operation;
    Code code;
    std::string message;
  } rows[] = {
      {"a chain of the other family is not the one", Observed().Chain(ipv6),
       DeleteChain{Filter("X")}, Code::kNotFound, "there is no such chain"},
      {"no rule is deleted from a chain that is missing", Observed(),
       DeleteRule{.chain = Filter("X"), .handle = 1, .rule = BareDrop()}, Code::kNotFound,
       "there is no such chain"},
      {"no jump to a chain of another table", Observed().Chain(Filter("X")).Chain(Nat("Y")),
       AddRule{.chain = Filter("X"), .rule = JumpTo("Y")}, Code::kNotFound,
       "there is no chain Y to jump to"},
      {"no jump to a base chain", Observed().Chain(Filter("X")).Chain(Filter("FORWARD")),
       AddRule{.chain = Filter("X"), .rule = JumpTo("FORWARD")}, Code::kFailedPrecondition,
       "a jump to a base chain"},
      {"no jump to the chain itself", Observed().Chain(Filter("X")),
       AddRule{.chain = Filter("X"), .rule = JumpTo("X")}, Code::kFailedPrecondition,
       "chains would jump in a circle"},
      {"no circle through two other chains",
       Observed()
           .Chain(Filter("A"), {JumpTo("B")})
           .Chain(Filter("B"), {JumpTo("C")})
           .Chain(Filter("C")),
       AddRule{.chain = Filter("C"), .rule = JumpTo("A")}, Code::kFailedPrecondition,
       "chains would jump in a circle"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_THAT(Refusal(row.observed, {row.operation}),
                StatusIs(row.code, AllOf(HasSubstr(row.message), HasSubstr("nothing was done"))));
  }
}

// Each chain jumps to the next one twice: 2^40 ways.
TEST(RestorePlanTest, SearchesEachChainForACircleOnce) {
  Observed observed = Observed().Chain(Filter("FROM"));
  for (int i = 0; i < 40; ++i) {
    const Rule next = {.target = netlink::Jump{absl::StrCat("C", i + 1)}};
    Rule other = next;
    other.comment = "again";
    observed.Chain(Filter(absl::StrCat("C", i)), {next, other});
  }
  const AddRule jump{.chain = Filter("FROM"), .rule = {.target = netlink::Jump{"C0"}}};
  EXPECT_EQ(Plan(observed.Chain(Filter("C40")), {jump}), "*filter\n-A FROM -j C0\nCOMMIT\n");
}

TEST(RestorePlanTest, TakesWhatOnlyResemblesOneOfThese) {
  const struct {
    std::string name;
    Observed observed;
    Operation operation;
    std::string text;
  } rows[] = {
      {"the user of another table's chain of that name",
       Observed().Chain(Filter("X")).Chain(Nat("X")).Chain(Nat("Y"), {JumpTo("X")}),
       DeleteChain{Filter("X")}, "*filter\n-X X\nCOMMIT\n"},
      {"the user of another family's chain of that name",
       Observed().Chain(Filter("X")).Chain(Filter("Y", Family::kIPv6), {JumpTo("X")}),
       DeleteChain{Filter("X")}, "*filter\n-X X\nCOMMIT\n"},
      {"two ways to one chain are no circle",
       Observed()
           .Chain(Filter("A"), {JumpTo("B"), JumpTo("C")})
           .Chain(Filter("B"), {JumpTo("D")})
           .Chain(Filter("C"))
           .Chain(Filter("D")),
       AddRule{.chain = Filter("C"), .rule = JumpTo("D")}, "*filter\n-A C -j D\nCOMMIT\n"},
      {"a jump on to a chain that was not read",
       Observed().Chain(Filter("X")).Chain(Filter("Y"), {JumpTo("Z")}),
       AddRule{.chain = Filter("X"), .rule = JumpTo("Y")}, "*filter\n-A X -j Y\nCOMMIT\n"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(Plan(row.observed, {row.operation}), row.text);
  }
}

TEST(RestorePlanTest, ANewRuleHasNoHandleToBeFoundByAndNoChainIsMadeAgain) {
  EXPECT_THAT(Refusal(Observed().Chain(Filter("X")),
                      {AddRule{.chain = Filter("X"), .rule = BareDrop()},
                       DeleteRule{.chain = Filter("X"), .handle = 0, .rule = BareDrop()}}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(
      Refusal(Observed().Chain(Filter("X")), {DeleteChain{Filter("X")}, CreateChain{Filter("X")}}),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RestorePlanTest, KeepsTheGenerationThatItWasPlannedFor) {
  const absl::StatusOr<netlink::Transaction> plan =
      PlanRestore({}, {.generation = 7, .operations = {CreateChain{Filter("X")}}}, false);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->generation, 7U);
}

// If rules are only removed, nat comes first. A chain that exists already is no addition.
TEST(RestorePlanTest, ATableThatLosesChainsOnlyIsCommittedFirst) {
  const Observed observed = Observed().Chain(Filter("F")).Chain(Nat("N"));
  EXPECT_EQ(
      Plan(observed, {CreateChain{Filter("F")}, DeleteChain{Filter("F")}, DeleteChain{Nat("N")}}),
      "*nat\n-X N\nCOMMIT\n*filter\n-X F\nCOMMIT\n");
  EXPECT_EQ(
      Plan(observed, {CreateChain{Filter("G")}, DeleteChain{Filter("F")}, DeleteChain{Nat("N")}}),
      "*filter\n:G - [0:0]\nCOMMIT\n*nat\n-X N\nCOMMIT\n*filter\n-X F\nCOMMIT\n");
}

TEST(RestorePlanTest, AddsALabelOnlyWhereARuleOfThatFamilyHasOne) {
  const Rule labels{.conn_label = netlink::ConnLabelMatch{.label = 114}};
  const auto plan = [](std::vector<Operation> operations) {
    return netlink::Transaction{.operations = std::move(operations)};
  };
  const netlink::Transaction adds =
      plan({CreateChain{Filter("F")}, AddRule{.chain = Filter("F"), .rule = labels}});
  EXPECT_TRUE(agent::AddsConnLabel(adds, Family::kIPv4));
  EXPECT_FALSE(agent::AddsConnLabel(adds, Family::kIPv6));
  EXPECT_FALSE(agent::AddsConnLabel(plan({AddRule{.chain = Filter("F"), .rule = BareDrop()}}),
                                    Family::kIPv4));
  EXPECT_FALSE(agent::AddsConnLabel(
      plan({DeleteRule{.chain = Filter("F"), .handle = 1, .rule = labels}}), Family::kIPv4));
}

std::vector<SavedTable> Tables(const std::string& text) {
  const auto tables = agent::ReadSave(text, agent::TablesMayRepeat::kNo);
  EXPECT_THAT(tables, IsOk()) << text;
  return tables.ok() ? *tables : std::vector<SavedTable>();
}

// The rules of each chain, each as its text.
std::map<ChainId, std::vector<std::string>> Selected(const std::string& text,
                                                     const SavedSelection& selection) {
  std::map<ChainId, std::vector<std::string>> rules;
  for (const auto& [id, chain] : ChainsOf(Family::kIPv4, Tables(text), &selection)) {
    rules[id];
    for (const auto& rule : chain.rules) rules[id].push_back(ToString(Family::kIPv4, rule));
  }
  return rules;
}

TEST(SavedTextTest, IsTheSameWhateverTheTimeAndTheCounters) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const std::string rule = "-A X -m comment --comment \"";
  const Pairs same = {
      {"# Generated by iptables-save at noon\n", "# Generated by iptables-save at one\n"},
      {":INPUT ACCEPT [0:0]\n", ":INPUT ACCEPT [12:3]\n"},
      {"[0:0] -A X -j DROP\n", "[12:34] -A X -j DROP\n"},
      {"[1:2] -A X -j DROP\n", "-A X -j DROP\n"},
      {"\n# noon\n", "\n# one\n"},
      {"# \"a\n[0:0] -A X\n", "# \"a\n[1:2] -A X\n"},
      {rule + "a \"\n[0:0] -A X\n", rule + "a \"\n[1:2] -A X\n"},
  };
  const Pairs different = {
      {":INPUT ACCEPT [0:0]\n", ":INPUT DROP [0:0]\n"},
      {":A - [0:0]\n", ":B - [0:0]\n"},
      {"-A X -j DROP\n", "-A X -j RETURN\n"},
      {"-A X -j A\n-A X -j B\n", "-A X -j B\n-A X -j A\n"},
      {"[0:0] -A X -j DROP\n", "[0:0] -A Y -j DROP\n"},
      {"# \"a\n-A X\n", "# \"a\n-A Y\n"},
      // In a comment of a rule, all of it counts.
      {rule + "a\n# b\"\n", rule + "a\n# c\"\n"},
      {rule + "a\n: [1\"\n", rule + "a\n: [2\"\n"},
      {rule + "a\\\"\n# b\"\n", rule + "a\\\"\n# c\"\n"},
      {rule + "a\n[1:2] b\"\n", rule + "a\n[1:3] b\"\n"},
      {"[0:0] " + rule + "a\n[1:2] b\"\n", "[0:0] " + rule + "a\n[1:3] b\"\n"},
  };
  const auto hash = [](const std::string& lines) {
    return absl::HashOf(Tables(absl::StrCat("*nat\n:X - [0:0]\n:Y - [0:0]\n", lines, "COMMIT\n")));
  };
  for (const auto& [a, b] : same) EXPECT_EQ(hash(a), hash(b)) << a;
  for (const auto& [a, b] : different) EXPECT_NE(hash(a), hash(b)) << a;
  EXPECT_EQ(absl::HashOf(Tables("# a")), absl::HashOf(Tables("# b"))) << "no newline at the end";
  EXPECT_NE(absl::HashOf(Tables("*nat\nCOMMIT\n")), absl::HashOf(Tables("*raw\nCOMMIT\n")));
}

TEST(SavedTextTest, SelectsChainsAndRules) {
  const std::string text =
      "# time\n*nat\n:USER - [0:0]\n-A USER -j DROP\nCOMMIT\n*filter\n:USER - [0:0]\n"
      ":USER2 - [0:0]\n-A USER -j A\n-A USER2 -m comment --comment \"x\n-A USER -j B\" -j C\n"
      "-A USER2 -g WANTED\nCOMMIT\n*raw\n:USER - [0:0]\n-A USER -j E\nCOMMIT\n";
  const ChainId user{Family::kIPv4, Table::kFilter, "USER"};
  const ChainId user2{Family::kIPv4, Table::kFilter, "USER2"};
  const ChainId nat_user{Family::kIPv4, Table::kNat, "USER"};
  const SavedSelection selection = {.chains = {user}, .bare = {nat_user}, .words = {"WANTED"}};
  EXPECT_THAT(Selected(text, selection),
              UnorderedElementsAre(Pair(nat_user, IsEmpty()), Pair(user, ElementsAre("-j A")),
                                   Pair(user2, ElementsAre("-g WANTED"))));
  EXPECT_THAT(Selected("*filter\n:USER - [0:0]\n:USER2 - [0:0]\n[1:2] -A USER -j A\n"
                       "[3:4] -A USER2 -m comment --comment \"x\n[0:0] -A USER -j B\" -j C\n"
                       "COMMIT\n",
                       {.chains = {user}}),
              ElementsAre(Pair(user, ElementsAre("-j A"))));
}

// iptables-save 1.8.9 does not escape names; the rules after one must still be read.
TEST(SavedTextTest, TakesAQuoteInAName) {
  const ChainId user{Family::kIPv4, Table::kFilter, "USER"};
  for (const std::string odd :
       {"-m recent --set --name \"x --mask 255.255.255.255 --rsource",
        "-m recent --name r\"s --rsource", "-i \"eth0 -o \" -j \"c",
        "-m hashlimit --hashlimit-name \"h -m recent --name \"y", "-g \"c"}) {
    const std::string text =
        absl::StrCat("*filter\n:INPUT ACCEPT [0:0]\n:\"c - [0:0]\n:USER - [0:0]\n-A INPUT ", odd,
                     "\n-A \"c ", odd, "\n-A USER -m comment --comment \"a b\" -j A\nCOMMIT\n");
    EXPECT_THAT(Selected(text, {.chains = {user}}),
                ElementsAre(Pair(user, ElementsAre("-m comment --comment \"a b\" -j A"))))
        << odd;
  }
}

}  // namespace
}  // namespace kipt::testing::restore_plan_test
