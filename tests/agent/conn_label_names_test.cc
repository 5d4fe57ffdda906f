// SPDX-License-Identifier: Apache-2.0
//
// Labels that connlabel.conf names. tests/kernel/conn_label_names_test.cc holds the same against
// iptables itself.
#include "agent/xtables/conn_label_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/xtables/save_parser.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(ConnLabelNamesTest, ReadsTheFileAsIptablesDoes) {
  EXPECT_THAT(ParseConnLabelNames("# 1 comment\n114 masq\n115\ttwo  words \t\r\n0x10 hex\n010 oct\n"
                                  "  9 spaces before\n12abc\n0 zero\n127 last"),
              ElementsAre(Pair("abc", 12), Pair("hex", 16), Pair("last", 127), Pair("masq", 114),
                          Pair("oct", 8), Pair("spaces before", 9), Pair("two  words", 115),
                          Pair("zero", 0)));
  EXPECT_THAT(ParseConnLabelNames("1 a\n2 a\n1 b\n3 c"), ElementsAre(Pair("a", 1), Pair("c", 3)))
      << "the first counts";
  EXPECT_THAT(ParseConnLabelNames("1000 a\n3 a\n1024 b\n-1 c\n99999999999999999999 d\n"),
              ElementsAre(Pair("a", 1000)))
      << "a name is taken by a label that the kernel does not have";
}

TEST(ConnLabelNamesTest, LeavesOutWhatItDoesNotUnderstand) {
  for (const std::string text :
       {"", "\n", "masq\n", "114\n", "114 \t\n", "1 under_score\n", "1 quo\"te\n", "1 a.b\n",
        "x 1 a\n", "\xff\xfe\n", "1 \xc3\xbc\n"}) {
    EXPECT_THAT(ParseConnLabelNames(text), IsEmpty()) << text;
  }
  EXPECT_THAT(ParseConnLabelNames(std::string("1 a\0b\n2 c\n", 10)),
              ElementsAre(Pair("a", 1), Pair("c", 2)));
}

TEST(ConnLabelNamesTest, HasNoneWhereTheFileIsNotThereNoFileOrTooLarge) {
  const testing::TemporaryTree tree;
  EXPECT_THAT(ReadConnLabelNames(tree.root() + "/none"), IsEmpty());
  EXPECT_THAT(ReadConnLabelNames(tree.root()), IsEmpty()) << "a directory";
  const std::string path = tree.root() + "/connlabel.conf";
  const std::string line = "114 masq\n";
  std::ofstream(path) << line << std::string((64 << 10) - line.size(), '\n');
  EXPECT_THAT(ReadConnLabelNames(path), SizeIs(1));
  std::ofstream(path, std::ios::app) << "\n";
  EXPECT_THAT(ReadConnLabelNames(path), IsEmpty());
}

TEST(ConnLabelNamesTest, PutsNumbersInPlaceOfNames) {
  const ConnLabelNames names = {{"masq", 114}, {"two words", 115}, {"-j DROP", 7}, {"3", 114},
                                {"0x5", 6},    {"over", 200},      {"114", 8},     {"9", 10}};
  struct Row {
    std::string rule;
    std::string expected;
  };
  const Row rows[] = {
      {"-m connlabel --label \"masq\" --set", "-m connlabel --label \"114\" --set"},
      {"-m connlabel ! --label \"two words\" -j DROP", "-m connlabel ! --label \"115\" -j DROP"},
      {"-m connlabel --label \"-j DROP\" -j A", "-m connlabel --label \"7\" -j A"},
      {"-m connlabel --label \"masq\" -m connlabel ! --label \"two words\" --set",
       "-m connlabel --label \"114\" -m connlabel ! --label \"115\" --set"},
      {"-m connlabel --label \"0x5\"", "-m connlabel --label \"6\""},
      // Label 114 has a name of its own, so this is label 8. Label 9 has none, so this may be it.
      {"-m connlabel --label \"114\" --set", "-m connlabel --label \"8\" --set"},
      {"-m connlabel --label \"9\" --set", "-m connlabel --label \"9\" --set"},
      {"-m connlabel --label \"20\"", "-m connlabel --label \"20\""},
      {"-m connlabel --label \"nobody\"", "-m connlabel --label \"nobody\""},
      {"-m connlabel --label \"over\"", "-m connlabel --label \"over\""},
      {"-m connlabel --label masq", "-m connlabel --label masq"},
      {"-m connlabel --label", "-m connlabel --label"},
      {"-m connlabel", "-m connlabel"},
      {"-m comment --comment \"-m connlabel --label \\\"masq\\\"\" -j DROP",
       "-m comment --comment \"-m connlabel --label \\\"masq\\\"\" -j DROP"},
      {"-m comment --comment \"a\n-A X -m connlabel --label \"  -j DROP",
       "-m comment --comment \"a\n-A X -m connlabel --label \"  -j DROP"},
      {"-j connlabel --label \"masq\"", "-j connlabel --label \"masq\""},
  };
  for (const Row& row : rows) {
    const auto saved = [](const std::string& rule) {
      return absl::StrCat("# -m connlabel --label \"masq\"\n*nat\n:X - [0:0]\n[1:2] -A X ", rule,
                          "\n-A X ", rule, "\nCOMMIT\n");
    };
    EXPECT_EQ(WithConnLabelNumbers(saved(row.rule), names), saved(row.expected));
    EXPECT_EQ(WithConnLabelNumbers(saved(row.rule), {}), saved(row.rule));
  }
}

TEST(ConnLabelNamesTest, LeavesBrokenTextsAsTheyAre) {
  const ConnLabelNames names = {{"a", 1}};
  for (const std::string text :
       {"", "\n", "-A X -m connlabel --label \"a\n", "-A X \"b\"c -m connlabel --label \"a\"\n",
        "x -m connlabel --label \"a\"", "-"}) {
    EXPECT_EQ(WithConnLabelNumbers(text, names), text);
  }
  EXPECT_EQ(WithConnLabelNumbers("-A X -m connlabel --label \"a\"", names),
            "-A X -m connlabel --label \"1\"")
      << "no newline at the end";
}

TEST(ConnLabelNamesTest, KnowsWhereNamesMayBe) {
  EXPECT_TRUE(MentionsConnLabels("-A X -m connlabel ! --label \"a\"\n"));
  EXPECT_FALSE(MentionsConnLabels("-A X -m mark --mark 0x1/0x1\n"));
}

TEST(ConnLabelNamesTest, MakesOurRulesOutOfNamedOnes) {
  const std::string saved = "*nat\n:X - [0:0]\n-A X -m connlabel --label \"masq\" --set\nCOMMIT\n";
  const netlink::ChainId chain{netlink::Family::kIPv4, netlink::Table::kNat, "X"};
  const auto named = ParseSave(netlink::Family::kIPv4, saved);
  ASSERT_THAT(named, testing::IsOk());
  EXPECT_EQ(named->at(chain).rules[0].rule(), nullptr);
  const auto numbered =
      ParseSave(netlink::Family::kIPv4, WithConnLabelNumbers(saved, {{"masq", 114}}));
  ASSERT_THAT(numbered, testing::IsOk());
  ASSERT_NE(numbered->at(chain).rules[0].rule(), nullptr);
  EXPECT_EQ(*numbered->at(chain).rules[0].rule(),
            (netlink::Rule{.conn_label = netlink::ConnLabelMatch{.label = 114, .set = true},
                           .target = netlink::NoTarget{}}));
}

}  // namespace
}  // namespace kipt::agent
