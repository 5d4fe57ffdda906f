// SPDX-License-Identifier: Apache-2.0
//
// Whole saves: tables, chains, and what is not a save. iptables_save_rule_test.cc has the rules,
// tests/kernel/iptables_save_reader_test.cc compares with the nft backend.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_save.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/process_cost.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using netlink::ObservedChain;
using netlink::ObservedRule;

using Chains = std::map<ChainId, ObservedChain>;

std::vector<std::string> Lines(const absl::StatusOr<Chains>& chains, const ChainId& id) {
  EXPECT_THAT(chains, IsOk());
  if (!chains.ok() || chains->count(id) == 0) return {"no " + ToString(id)};
  std::vector<std::string> lines;
  for (const ObservedRule& rule : chains->at(id).rules) {
    lines.push_back(absl::StrCat(rule.rule() != nullptr ? "" : "opaque: ", rule.handle, " ",
                                 ToString(id.family, rule)));
  }
  return lines;
}

TEST(SaveParserTest, NothingIsAWholeSaveToo) {
  EXPECT_THAT(ParseSave(Family::kIPv4, ""), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ParseSave(Family::kIPv4, "# Table `filter' is incompatible, \"use nft\n\n"),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ParseSave(Family::kIPv6, "*mangle\n:INPUT ACCEPT [0:0]\nCOMMIT"),
              IsOkAndHolds(ElementsAre(Key(Mangle("INPUT", Family::kIPv6)))));
}

TEST(SaveParserTest, SkipsTablesOfOthers) {
  const absl::StatusOr<Chains> chains = ParseSave(
      Family::kIPv4,
      "*raw\n:OUTPUT ACCEPT [0:0]\n:X - [0:0]\n-A OUTPUT -j X\nCOMMIT\n"
      "*security\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m comment --comment \"\nCOMMIT\" -j DROP\n"
      "COMMIT\n*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j X\nCOMMIT\n");
  ASSERT_THAT(chains, IsOkAndHolds(ElementsAre(Key(Filter("OUTPUT")))));
  EXPECT_THAT(Lines(chains, Filter("OUTPUT")), ElementsAre("opaque: 1 -j X"))
      << "raw's X is not filter's";
}

TEST(SaveParserTest, ABaseChainWithASelectedWordIsHooked) {
  const auto tables =
      ReadSave("*filter\n:INPUT ACCEPT [0:0]\n:KUBE-X - [0:0]\n-A INPUT -j KUBE-X\nCOMMIT\n",
               TablesMayRepeat::kNo);
  ASSERT_TRUE(tables.ok()) << tables.status();
  const SavedSelection selection = {.chains = {}, .words = {"KUBE-X"}};
  const ObservedChains chains = ChainsOf(Family::kIPv4, *tables, &selection);
  ASSERT_EQ(chains.size(), 1U);
  EXPECT_EQ(chains.begin()->first.name, "INPUT");
  EXPECT_TRUE(chains.begin()->second.hooked);
}

TEST(SaveParserTest, ACommentHasAsManyLinesAsItLikes) {
  const absl::StatusOr<Chains> chains = ParseSave(
      Family::kIPv4,
      "*filter\n:A - [0:0]\n-A A -m comment --comment \"x\\\"\n-A A -j DROP\nCOMMIT\n\" -j RETURN\n"
      "-A A -j DROP\nCOMMIT\nwrong\n");
  EXPECT_THAT(chains, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 9: unknown")));
}

TEST(SaveParserTest, TakesEveryPolicyThatAChainCanHave) {
  for (const char* policy : {"-", "ACCEPT", "DROP", "QUEUE", "RETURN"}) {
    EXPECT_THAT(
        ParseSave(Family::kIPv4, absl::StrCat("*filter\n:INPUT ", policy, " [0:0]\nCOMMIT\n")),
        IsOk())
        << policy;
  }
}

TEST(SaveParserTest, RefusesWhatIptablesSaveDoesNotPrint) {
  const std::string head = "*filter\n:A - [0:0]\n";
  const std::pair<std::string, std::string> rows[] = {
      {head + "-A A -j DROP\n", "line 4: the end"},
      {head + "COMMI", "line 3: unknown line: COMMI"},
      {head + "*nat\nCOMMIT\n", "line 3: a table before"},
      {head + "COMMIT\n" + head + "COMMIT\n", "line 4: a table for the second"},
      {"*\nCOMMIT\n", "line 1: unknown line"},
      {head + "COMMIT\nCOMMIT\n", "line 4: COMMIT outside"},
      {":A - [0:0]\n", "line 1: a chain outside"},
      {head + ":A - [0:0]\nCOMMIT\n", "line 3: a chain for the second"},
      {head + "-A A -j B\n:B - [0:0]\nCOMMIT\n", "line 4: a chain outside"},
      {"*filter\n:A -\nCOMMIT\n", "line 2: unknown line"},
      {"*filter\n:A - [0:\nCOMMIT\n", "line 2: unknown line"},
      {"*filter\n: - [0:0]\nCOMMIT\n", "line 2: unknown line"},
      {"*filter\n:A MAYBE [0:0]\nCOMMIT\n", "line 2: unknown line"},
      {"-A A -j DROP\n", "line 1: a rule outside"},
      {head + "COMMIT\n*nat\n-A A -j DROP\nCOMMIT\n", "line 5: a rule of a chain"},
      {head + "-A A2 -j DROP\nCOMMIT\n", "line 3: a rule of a chain"},
      {head + "-I A -j DROP\nCOMMIT\n", "line 3: unknown line: -I A"},
      {head + "[0:0]\nCOMMIT\n", "line 3: unknown line"},
      {head + " -A A -j DROP\nCOMMIT\n", "line 3: unknown line"},
      {head + "-A A -m comment --comment \"x -j DROP\nCOMMIT\n", "line 3: a quote"},
      {head + "-A A --comment \"x\"y -j DROP\nCOMMIT\n", "line 3: a quote"},
      {head + "-A A --c \"x -j DROP\n-A A --c \"y z\" -j B\nCOMMIT\n", "line 3: a quote"},
      {head + "-A A -m comment --comment x" + std::string(1, '\0') + "\n", "line 3: a NUL byte"},
      {"#" + std::string(1, '\0'), "line 1: a NUL byte"},
      {"\x1b[2J\n", "line 1: unknown line: \\x1b[2J"},  // shown harmlessly
  };
  for (const auto& [text, message] : rows) {
    EXPECT_THAT(ParseSave(Family::kIPv4, text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

TEST(SaveParserTest, ShowsOnlyTheBeginningOfALongLine) {
  const absl::StatusOr<Chains> chains = ParseSave(Family::kIPv4, std::string(1 << 20, 'x'));
  ASSERT_THAT(chains, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1")));
  EXPECT_LT(chains.status().message().size(), 200U);
}

TEST(SaveParserTest, OneMebibyteOfAnythingIsReadInNoTime) {
  for (const std::string piece :
       {"-A A -m comment --comment \"a b\" -m mark --mark 0x1 -j A\n", "-m mark --mark 0x1 ",
        "-j -g ", "\"\" ", "x", "\" \" \"", "\\", "\n", "-s / -m conntrack --ctstate NEW,NEW "}) {
    SCOPED_TRACE(piece);
    std::string text = "*filter\n:A - [0:0]\n-A A -m comment --comment ";
    while (text.size() < 1 << 20) text += piece;
    text += "\nCOMMIT\n";
    const absl::Duration start = testing::CpuOfThisThread();
    const absl::StatusOr<Chains> chains = ParseSave(Family::kIPv4, text);
    EXPECT_LT(testing::CpuOfThisThread() - start, absl::Seconds(1));
    EXPECT_TRUE(chains.ok() || absl::IsInvalidArgument(chains.status())) << chains.status();
  }
}

}  // namespace
}  // namespace kipt::agent
