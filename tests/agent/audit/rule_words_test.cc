// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/rule_words.h"

#include <string>
#include <vector>

#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

TEST(RuleWordsTest, TellsWhatAServiceRuleMatches) {
  const std::string text =
      "! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m comment --comment "
      "\"kube-system/kube-dns:metrics cluster IP\" -m tcp --dport 9153 -j KUBE-MARK-MASQ";
  const RuleWords words = ParseRuleWords(text);
  EXPECT_EQ(words.Get("-s").text, "10.244.0.0/16");
  EXPECT_TRUE(words.Get("-s").negated);
  EXPECT_EQ(words.Get("-d").text, "10.96.0.10/32");
  EXPECT_FALSE(words.Get("-d").negated);
  EXPECT_EQ(words.Get("-p").text, "tcp");
  EXPECT_EQ(words.Get("--dport").text, "9153");
  EXPECT_EQ(words.target, "KUBE-MARK-MASQ");
  EXPECT_THAT(words.others, IsEmpty());
}

TEST(RuleWordsTest, KeepsTheTargetsArguments) {
  const std::string text = "-p tcp -m tcp -j DNAT --to-destination 10.0.0.1:80 --random";
  const RuleWords words = ParseRuleWords(text);
  EXPECT_EQ(words.target, "DNAT");
  EXPECT_EQ(words.target_arguments, "--to-destination 10.0.0.1:80 --random");
  EXPECT_EQ(words.TargetArgument("--to-destination"), "10.0.0.1:80");
  EXPECT_EQ(words.TargetArgument("--to-source"), "");
}

TEST(RuleWordsTest, KeepsWhatItDoesNotKnowAsItStands) {
  const std::string text =
      "-m physdev --physdev-in veth0 ! --physdev-is-bridged -s 10.0.0.1/32 [xt foo rev 1] -m mark "
      "--mark 0x1 -m connmark --mark 0x2 -g OTHER";
  const RuleWords words = ParseRuleWords(text);
  EXPECT_THAT(words.others, ElementsAre("-m physdev --physdev-in veth0 ! --physdev-is-bridged",
                                        "[xt foo rev 1]", "-m connmark --mark 0x2"));
  EXPECT_EQ(words.Get("-s").text, "10.0.0.1/32");
  EXPECT_EQ(words.Get("--mark").text, "0x1");
  EXPECT_EQ(words.target, "OTHER");
}

TEST(RuleWordsTest, ReadsSetsAndStatistics) {
  const std::string text =
      "-m set ! --match-set KUBE-CLUSTER-IP dst,dst -m statistic --mode random --probability "
      "0.50000000000 -m addrtype ! --dst-type LOCAL";
  const RuleWords words = ParseRuleWords(text);
  EXPECT_EQ(words.Get("--match-set").text, "KUBE-CLUSTER-IP");
  EXPECT_TRUE(words.Get("--match-set").negated);
  EXPECT_EQ(words.set_flags, "dst,dst");
  EXPECT_EQ(words.Get("--probability").text, "0.50000000000");
  EXPECT_TRUE(words.Get("--dst-type").negated);
  EXPECT_EQ(words.target, "");
}

TEST(RuleWordsTest, AnswersToAnyBytes) {
  const std::vector<std::string> texts = {"",
                                          "!",
                                          "-j",
                                          "-s",
                                          "-m",
                                          "-m comment --comment",
                                          "\"open",
                                          "-j \"",
                                          "! ! -s ! x",
                                          "-m set --match-set a",
                                          std::string("\0\xff -s", 5),
                                          "--probability",
                                          "[xt",
                                          "-m comment --comment \"\\"};
  for (const std::string& text : texts) {
    const RuleWords words = ParseRuleWords(text);
    EXPECT_NE(RuleSentence(words), "") << text;
  }
}

TEST(RuleWordsTest, ACommentRestrictsNothing) {
  const std::string text = "-m comment --comment x -j ACCEPT";
  EXPECT_EQ(RuleSentence(ParseRuleWords(text)), "every packet is accepted");
}

struct SentenceRow {
  std::string name;
  std::string rule;
  std::string sentence;
};

TEST(RuleSentenceTest, SaysItInPlainWords) {
  const SentenceRow rows[] = {
      {"OrMark", "-j MARK --set-xmark 0x4000/0x4000", "every packet gets mark bit 14 (0x4000)"},
      {"XorMark", "-j MARK --set-xmark 0x4000/0x0",
       "every packet has mark bit 14 (0x4000) turned over"},
      {"ClearMark", "-j MARK --set-xmark 0x0/0xc000", "every packet loses mark bits 0xc000"},
      {"MarkByHand", "-j MARK --or-mark 16384",
       "every packet has its mark changed (--or-mark 16384)"},
      {"MarkWithoutOptions", "-j MARK", "every packet has its mark changed ()"},
      {"UnmarkedReturn", "-m mark ! --mark 0x4000/0x4000 -j RETURN",
       "a packet without mark bit 14 (0x4000) returns, and no other rule here applies to it"},
      {"Dnat", "-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 1.2.3.4:8",
       "a tcp packet from 10.0.0.1 to port 80 is sent to 1.2.3.4:8 instead"},
      {"Martian",
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate "
       "RELATED,ESTABLISHED,DNAT -j DROP",
       "a packet from outside 127.0.0.0/8 to 127.0.0.0/8 of connections in none of the "
       "states RELATED,ESTABLISHED,DNAT is dropped"},
      {"Chance", "-m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-X",
       "a packet by chance (33.3 %) jumps to KUBE-SEP-X"},
      {"SetLabel", "-m connlabel --label \"114\" --set",
       "every packet gives its connection label 114"},
      {"SetLabelAndMore", "-p tcp -m connlabel --label \"5\" --set -m tcp --dport 80 -j ACCEPT",
       "a tcp packet to port 80 gives its connection label 5 and is accepted"},
      {"Labelled", "-m connlabel --label \"115\" -j DROP",
       "a packet of connections with label 115 is dropped"},
      {"NotLabelled", "-m connlabel ! --label \"mine\" -j RETURN",
       "a packet of connections without label mine returns, and no other rule here "
       "applies to it"},
      {"LabelsThatAreNoLabels", "-m connlabel --set -j DROP", "a packet (--set) is dropped"},
      {"NoTarget", "-p udp", "every udp packet is counted"},
  };
  for (const SentenceRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(RuleSentence(ParseRuleWords(row.rule)), row.sentence);
  }
}

TEST(ServiceInCommentTest, IsTheNameThatKubeProxyWrote) {
  EXPECT_EQ(ServiceInComment("ns1/svc1:p80 cluster IP"), "ns1/svc1:p80");
  EXPECT_EQ(ServiceInComment("default/echo: loadbalancer IP"), "default/echo");
  EXPECT_EQ(ServiceInComment("masquerade traffic for b/np:p80 external destinations"), "b/np:p80");
  EXPECT_EQ(ServiceInComment("masquerade LOCAL traffic for a/b LB IP"), "a/b");
  EXPECT_EQ(ServiceInComment("b/aff:p80 -> 10.180.0.11:80"), "b/aff:p80");
  EXPECT_EQ(ServiceInComment("kubernetes service portals"), "");
  EXPECT_EQ(ServiceInComment(""), "");
}

TEST(SingleHostTest, IsAPrefixOfFullLength) {
  EXPECT_EQ(SingleHost("10.0.0.1/32"), "10.0.0.1");
  EXPECT_EQ(SingleHost("fd00::1/128"), "fd00::1");
  EXPECT_EQ(SingleHost("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(SingleHost("fd00::/32"), "");
  EXPECT_EQ(SingleHost("10.0.0.0/8"), "");
}

}  // namespace
}  // namespace kipt::agent
