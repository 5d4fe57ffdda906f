// SPDX-License-Identifier: Apache-2.0
//
// Single rules of a save: their words, which ones are Rules, and what is known of the others.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/xtables/saved_rule.h"
#include "netlink/ruleset.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::NoTarget;
using netlink::OpaqueRule;
using netlink::Rule;

// User chains OTHER, LOG and those that nft lets have a verdict's name, the built-in chain INPUT.
std::variant<Rule, OpaqueRule> Parse(Family family, const std::string& text) {
  const SavedChains chains = {{"OTHER", "-"}, {"LOG", "-"},    {"INPUT", "ACCEPT"},
                              {"DROP", "-"},  {"RETURN", "-"}, {"ACCEPT", "-"}};
  std::vector<absl::string_view> words;
  EXPECT_EQ(SplitSavedRule(text, words), text.size());
  return ParseSavedRule(family, chains, text);
}

// A Rule comes back as it was spelled, except where there are several spellings.
TEST(SaveRuleTest, ReadsWhatIsInTheVocabulary) {
  constexpr Family k4 = Family::kIPv4;
  constexpr Family k6 = Family::kIPv6;
  struct Row {
    std::string name;
    Family family;
    std::string text;
    std::string shown = text;
  };
  const std::string longest(255, 'c');
  const std::vector<Row> rows = {
      {"drop", k4, "-j DROP"},
      {"return", k4, "-j RETURN"},
      {"jump", k4, "-j OTHER"},
      {"chain of an extension's name", k4, "-j LOG"},
      {"mark", k4, "-j MARK --set-xmark 0x4000/0x0"},
      {"masquerade", k4, "-j MASQUERADE"},
      {"masquerade at random", k6, "-j MASQUERADE --random-fully"},
      {"source", k4, "-s 10.0.0.0/8 -j DROP"},
      {"not destination", k6, "! -d fd00::/64 -j DROP"},
      {"bare address", k6, "-s ::1 -j DROP", "-s ::1/128 -j DROP"},
      {"other spelling of an address", k6, "-s fd00:0:0::0/16 -j DROP", "-s fd00::/16 -j DROP"},
      {"comment", k4, "-m comment --comment word -j DROP"},
      {"quoted comment", k4, R"(-m comment --comment "a \"b\" \\ \'c" -j DROP)"},
      {"comment like a target", k4, "-m comment --comment -j -j OTHER"},
      {"comment like a rule", k4, R"(-m comment --comment "-j DROP" -j OTHER)"},
      {"longest comment", k4, "-m comment --comment " + longest + " -j DROP"},
      {"mark without a mask", k4, "-m mark --mark 0x7 -j DROP"},
      {"not mark", k4, "-m mark ! --mark 0x4000/0x4000 -j RETURN"},
      {"states", k4, "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"},
      {"states in another order", k4, "-m conntrack ! --ctstate DNAT,ESTABLISHED,RELATED -j DROP",
       "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"},
      {"every state", k4,
       "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j DROP"},
      {"label", k4, "-m connlabel --label \"0\" -j DROP"},
      {"set label", k4, "-m connlabel --label \"114\" --set"},
      // iptables-nft-save 1.8.7 prints a space at the end.
      {"set label, by an old program", k4, "-m connlabel --label \"114\" --set ",
       "-m connlabel --label \"114\" --set"},
      {"set label on some", k4,
       "-s 10.0.0.0/8 -m comment --comment -j -m connlabel ! --label \"1\" --set"},
      {"set label, and a target", k4, "-m connlabel --label \"1\" --set -j OTHER"},
      {"everything in another order", k4,
       "-m conntrack --ctstate NEW -d 127.0.0.0/8 -m mark --mark 0x1 -m comment --comment c "
       "! -s 127.0.0.0/8 -j DROP",
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment c -m mark --mark 0x1 -m conntrack "
       "--ctstate NEW -j DROP"},
      {"spaces", k4, "  -m mark  --mark 0x1   -j DROP ", "-m mark --mark 0x1 -j DROP"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const std::variant<Rule, OpaqueRule> read = Parse(row.family, row.text);
    const Rule* rule = std::get_if<Rule>(&read);
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(ToString(row.family, *rule), row.shown);
  }
}

struct OpaqueRow {
  std::string name;
  std::string text;
  bool unconditional;
  bool decides;
  bool terminal;
  std::optional<std::string> jump = std::nullopt;
};

void ExpectOpaque(const std::vector<OpaqueRow>& rows) {
  for (const OpaqueRow& row : rows) {
    SCOPED_TRACE(row.name);
    const std::variant<Rule, OpaqueRule> read = Parse(Family::kIPv4, row.text);
    const OpaqueRule* rule = std::get_if<OpaqueRule>(&read);
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(rule->text, row.text);
    EXPECT_EQ(rule->unconditional, row.unconditional);
    EXPECT_EQ(rule->decides, row.decides);
    EXPECT_EQ(rule->terminal, row.terminal);
    EXPECT_EQ(rule->jump, row.jump);
  }
}

TEST(SaveRuleTest, KnowsWhatForeignTargetsDo) {
  ExpectOpaque({
      {"nothing", "", true, false, false},
      {"no target", "-p tcp", false, false, false},
      {"only a comment", "-m comment --comment count", true, false, false},
      {"accept", "-j ACCEPT", true, true, true},
      {"accept with a comment", "-m comment --comment \"a b\" -j ACCEPT", true, true, true},
      {"nfqueue", "-j NFQUEUE --queue-num 1", true, true, true},
      {"reject", "-j REJECT --reject-with icmp-port-unreachable", true, true, true},
      {"dnat", "-p tcp -j DNAT --to-destination 10.0.0.1:80", false, true, true},
      {"snat", "-j SNAT --to-source 10.0.0.1", true, true, true},
      {"redirect", "-p tcp -j REDIRECT --to-ports 1", false, true, true},
      {"log of which there is a chain too", "-j LOG --log-prefix \"-j DROP \"", true, false, false},
      {"nflog", "-j NFLOG --nflog-group 1", true, false, false},
      {"connmark", "-j CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x1", true, true, false},
      {"extension that nobody knows", "-j WHATEVER", true, true, false},
      {"chain of another table", "-j ELSEWHERE", true, true, false},
      {"built-in chain", "-j INPUT", true, true, false},
      {"jump", "-p tcp -j OTHER", false, true, false, "OTHER"},
      {"goto", "-g OTHER", true, true, true, "OTHER"},
      {"goto on a condition", "-i lo -g OTHER", false, true, true, "OTHER"},
      {"target without a name", "-j", false, true, false},
      {"target that looks like an option", "-j -x", false, true, false},
  });
}

TEST(SaveRuleTest, FindsTheTargetBehindMatchesThatNobodyKnows) {
  ExpectOpaque({
      {"options without arguments", "-m recent --rcheck --reap --rsource -j OTHER", false, true,
       false, "OTHER"},
      {"argument like a target's option",
       "-m hashlimit --hashlimit-name -j --hashlimit-mode srcip "
       "-j OTHER",
       false, true, false, "OTHER"},
      {"such an argument last", "-m hashlimit --hashlimit-name -j -j OTHER", false, true, false,
       "OTHER"},
      {"such an argument before a negation", "-m x --name -j ! --y -j OTHER", false, true, false,
       "OTHER"},
      {"quoted", "-m string --string \"-j OTHER\" --algo bm -j LOG --log-level 4", false, false,
       false},
      {"interface like a target's option", "-i -j -o eth0 -j DROP", false, true, true},
      {"interface like an address' option", "-i -s -j DROP", false, true, true},
      {"outgoing interface like one", "-o -s -j DROP", false, true, true},
      {"the target's own option like a target's", "-j LOG --log-prefix -j", true, false, false},
  });
}

TEST(SaveRuleTest, IsStrictAboutLabels) {
  ExpectOpaque({
      {"a foreign rule", "-p tcp -m connlabel --label \"3\" -j ACCEPT", false, true, true},
      {"counted", "-m connlabel --label \"3\"", false, false, false},
      {"set on some", "-p tcp -m connlabel --label \"3\" --set", false, false, false},
      {"set, and matched by nobody knows what", "-m connlabel --label \"3\" --set -m x", false,
       false, false},
      {"name", "-m connlabel --label \"masq\" -j DROP", false, true, true},
      {"name like a target", "-m connlabel --label \"-j DROP\" --set", false, false, false},
      {"without quotes", "-m connlabel --label 3 -j DROP", false, true, true},
      {"leading zero", "-m connlabel --label \"03\" -j DROP", false, true, true},
      {"hexadecimal", "-m connlabel --label \"0x3\" -j DROP", false, true, true},
      {"behind the last", "-m connlabel --label \"128\" -j DROP", false, true, true},
      {"too much for a number", "-m connlabel --label \"4294967299\" --set", false, false, false},
      {"nothing", "-m connlabel --label \"\" -j DROP", false, true, true},
      {"other option", "-m connlabel --mark \"3\" -j DROP", false, true, true},
      {"two labels", "-m connlabel --label \"3\" -m connlabel --label \"4\" --set", false, false,
       false},
      {"negated match", "! -m connlabel --label \"3\" -j DROP", false, true, true},
  });
}

TEST(SaveRuleTest, IsStrictAboutWhatIsOurs) {
  ExpectOpaque({
      {"protocol", "-p tcp -j DROP", false, true, true},
      {"interface", "-i eth+ -j DROP", false, true, true},
      {"address beyond its length", "-s 10.0.0.1/8 -j DROP", false, true, true},
      {"mask with holes", "-s 10.0.0.1/255.0.0.255 -j DROP", false, true, true},
      {"address of the other family", "-s fd00::/8 -j DROP", false, true, true},
      {"no address", "-s", false, false, false},
      {"old negation", "-s ! 10.0.0.0/8 -j DROP", false, true, true},
      {"two sources", "-s 10.0.0.0/8 -s 10.0.0.0/8 -j DROP", false, true, true},
      {"two states", "-m conntrack --ctstate NEW -m conntrack --ctstate NEW -j DROP", false, true,
       true},
      {"empty comment", "-m comment --comment \"\" -j DROP", true, true, true},
      {"comment quoted without need", "-m comment --comment \"a\" -j DROP", true, true, true},
      {"comment not quoted", "-m comment --comment a:b -j DROP", true, true, true},
      {"comment with another escape", "-m comment --comment \"a\\n\" -j DROP", true, true, true},
      {"comment too long", "-m comment --comment " + std::string(256, 'c') + " -j DROP", true, true,
       true},
      {"comment in a comment match that we do not know", "-m comment --verse a -j DROP", false,
       true, true},
      {"mark that is no number", "-m mark --mark 0x1g -j DROP", false, true, true},
      {"mark without 0x", "-m mark --mark 1 -j DROP", false, true, true},
      {"mark too large", "-m mark --mark 0x100000000 -j DROP", false, true, true},
      {"mask without digits", "-m mark --mark 0x1/ -j DROP", false, true, true},
      {"states of nothing", "-m conntrack --ctstate -j DROP", false, true, true},
      {"state that nobody knows", "-m conntrack --ctstate NEW,OLD -j DROP", false, true, true},
      {"state for the second time", "-m conntrack --ctstate NEW,NEW -j DROP", false, true, true},
      {"state's other name", "-m state --state NEW -j DROP", false, true, true},
      {"more of conntrack", "-m conntrack --ctstate NEW --ctdir ORIGINAL -j DROP", false, true,
       true},
      {"conntrack without states", "-m conntrack --ctstatus ASSURED -j DROP", false, true, true},
      {"options without their match", "--mark 0x1 -j DROP", false, true, true},
      {"negated match", "! -m mark --mark 0x1 -j DROP", false, true, true},
      {"drop with more", "-j DROP --more", true, true, true},
      {"jump with more", "-j OTHER --more", true, true, false},
      {"masquerade to ports", "-p tcp -j MASQUERADE --to-ports 1-2", false, true, true},
      {"masquerade at random, the old way", "-j MASQUERADE --random", true, true, true},
      {"mark set without a mask", "-j MARK --set-xmark 0x1", true, true, false},
      {"mark set with more", "-j MARK --set-xmark 0x1/0x1 --more", true, true, false},
      {"two targets", "-j DROP -j OTHER", true, true, true},
      {"quoted target", "-j \"DROP\"", false, true, false},
  });
}

TEST(SaveRuleTest, KeepsOfAForeignRuleWhatAnAuditAsksFor) {
  struct Row {
    std::string text;
    std::optional<netlink::InterfaceMatch> in_interface = {};
    std::string set = {};
    bool nfacct = false;
    bool returns = false;
  };
  for (const Row& row : {
           Row{.text = "-A X -i eth0 -j DROP", .in_interface = {{"eth0", false}}},
           Row{.text = "-A X ! -i eth0 -o eth1 -j DROP", .in_interface = {{"eth0", true}}},
           Row{.text = "-A X -i eth0 -i eth1 -j DROP", .in_interface = {{"eth0", false}}},
           Row{.text = "-A X -o eth0 -p tcp -j DROP"},
           Row{.text = "-A X -p tcp -j RETURN", .returns = true},
           Row{.text = "-A X -m nfacct --nfacct-name n -j DROP", .nfacct = true},
           Row{.text = "-A X -m set --match-set S src -m set --match-set T dst -j DROP",
           .set = "S"},
           Row{.text = "-A X -m set ! --match-set S src -j DROP", .set = "S"},
           Row{.text = "-A X -m set --return-nomatch S -j DROP"},
           Row{.text = "-A X -m other --match-set S src -j DROP"},
       }) {
    const auto parsed = Parse(Family::kIPv4, row.text);
    const auto* opaque = std::get_if<OpaqueRule>(&parsed);
    ASSERT_NE(opaque, nullptr) << row.text;
    EXPECT_EQ(opaque->in_interface, row.in_interface) << row.text;
    EXPECT_EQ(opaque->set, row.set) << row.text;
    EXPECT_EQ(opaque->nfacct, row.nfacct) << row.text;
    EXPECT_EQ(opaque->returns, row.returns) << row.text;
    EXPECT_EQ(opaque->known.target, netlink::Target(NoTarget{})) << row.text;
  }
}

TEST(SaveRuleTest, AnOptionOfAnotherMatchIsNotTakenForOneOfOurs) {
  for (const char* text :
       {"-A X -m connmark --mark 0x1/0x1 -j DROP", "-A X -m mark --other 0x1/0x1 -j DROP",
        "-A X -m other --ctstate NEW -j DROP", "-A X -m conntrack --other NEW -j DROP"}) {
    const auto parsed = Parse(Family::kIPv4, text);
    const auto* opaque = std::get_if<OpaqueRule>(&parsed);
    ASSERT_NE(opaque, nullptr) << text;
    EXPECT_EQ(opaque->known, Rule{.target = NoTarget{}}) << text;
  }
}

TEST(SaveRuleTest, AMatchThatEndsTheRuleCounts) {
  const auto parsed = Parse(Family::kIPv4, "-A X -m bpf");
  const auto* opaque = std::get_if<OpaqueRule>(&parsed);
  ASSERT_NE(opaque, nullptr);
  EXPECT_EQ(opaque->marks.tested, netlink::kAllMarks);
}

TEST(SaveWordsTest, TheArgumentOfSomeOptionsIsRaw) {
  for (const std::string option : {"-A", "-j", "-g", "-i", "-o", "--name", "--hashlimit-name"}) {
    std::vector<absl::string_view> words;
    const std::string text = option + " \"a b";
    EXPECT_EQ(SplitSavedRule(text, words), text.size()) << option;
    EXPECT_THAT(words, ElementsAre(option, "\"a", "b"));
  }
}

TEST(SaveWordsTest, SplitsAtSpacesOutsideQuotes) {
  std::vector<absl::string_view> words;
  const std::string line = R"(-A X  -m "a \" b" c"d 'e f' "")";
  const std::string text = line + "\nrest";
  EXPECT_EQ(SplitSavedRule(text, words), line.size());
  EXPECT_THAT(words, ElementsAre("-A", "X", "-m", R"("a \" b")", "c\"d", "'e", "f'", "\"\""));
  EXPECT_EQ(SplitSavedRule("\"a\nb\" c \nrest", words), 8U);
  EXPECT_THAT(words, ElementsAre("\"a\nb\"", "c"));
  EXPECT_EQ(SplitSavedRule("", words), 0U);
  EXPECT_THAT(words, IsEmpty());
  for (const char* open : {"\"", "a \"b\nc", "\"\\\"", "\"\\", "\"a\"b", "\"a\"\"b\""}) {
    EXPECT_EQ(SplitSavedRule(open, words), std::nullopt) << open;
  }
}

TEST(SaveWordsTest, UnquotesWhatWasQuoted) {
  for (const std::string text : {"", "word", "two words", "\"", "\\", "'", "\\\"'\\\\", "a\nb",
                                 "-j", "\xff\x01", "ends in \\", "a,b"}) {
    EXPECT_EQ(UnquoteSavedWord(netlink::QuoteForSave(text)), text);
  }
  for (const char* wrong :
       {"", "\"", "a b", "\"a", "a\"", "\"word\"", "\"a'b\"", "\"\\\"", "\"a \\b\"", "\"a \"b\""}) {
    EXPECT_EQ(UnquoteSavedWord(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace kipt::agent
