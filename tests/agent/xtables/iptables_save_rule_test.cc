// SPDX-License-Identifier: Apache-2.0
//
// Single rules of a save: their words, which ones are Rules, what is known of the others, and which
// bits of the packet mark they test and set.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/xtables/saved_rule.h"
#include "netlink/ruleset.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

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
    Family family;
    std::string text;
    std::string shown = text;
  };
  const std::string longest(255, 'c');
  const std::vector<Row> rows = {
      {k4, "-j DROP"},
      {k4, "-j RETURN"},
      {k4, "-j OTHER"},
      {k4, "-j LOG"},  // a chain of that name
      {k4, "-j MARK --set-xmark 0x4000/0x0"},
      {k4, "-j MASQUERADE"},
      {k6, "-j MASQUERADE --random-fully"},
      {k4, "-s 10.0.0.0/8 -j DROP"},
      {k6, "! -d fd00::/64 -j DROP"},
      {k6, "-s ::1 -j DROP", "-s ::1/128 -j DROP"},
      {k6, "-s fd00:0:0::0/16 -j DROP", "-s fd00::/16 -j DROP"},
      {k4, "-m comment --comment word -j DROP"},
      {k4, R"(-m comment --comment "a \"b\" \\ \'c" -j DROP)"},
      {k4, "-m comment --comment -j -j OTHER"},
      {k4, R"(-m comment --comment "-j DROP" -j OTHER)"},
      {k4, "-m comment --comment " + longest + " -j DROP"},
      {k4, "-m mark --mark 0x7 -j DROP"},
      {k4, "-m mark ! --mark 0x4000/0x4000 -j RETURN"},
      {k4, "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"},
      {k4, "-m conntrack ! --ctstate DNAT,ESTABLISHED,RELATED -j DROP",
       "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"},
      {k4, "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j DROP"},
      {k4, "-m connlabel --label \"0\" -j DROP"},
      // iptables-nft-save 1.8.7 prints a space at the end.
      {k4, "-m connlabel --label \"114\" --set ", "-m connlabel --label \"114\" --set"},
      {k4, "-s 10.0.0.0/8 -m comment --comment -j -m connlabel ! --label \"1\" --set"},
      {k4, "-m connlabel --label \"1\" --set -j OTHER"},
      {k4,
       "-m conntrack --ctstate NEW -d 127.0.0.0/8 -m mark --mark 0x1 -m comment --comment c "
       "! -s 127.0.0.0/8 -j DROP",
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment c -m mark --mark 0x1 -m conntrack "
       "--ctstate NEW -j DROP"},
      {k4, "  -m mark  --mark 0x1   -j DROP ", "-m mark --mark 0x1 -j DROP"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    const std::variant<Rule, OpaqueRule> read = Parse(row.family, row.text);
    const Rule* rule = std::get_if<Rule>(&read);
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(ToString(row.family, *rule), row.shown);
  }
}

// What an opaque rule does to packets.
struct Effect {
  bool unconditional;
  bool decides;
  bool terminal;
};
constexpr Effect kNothing = {true, false, false};
constexpr Effect kNothingOfSome = {false, false, false};
constexpr Effect kVerdict = {true, true, true};
constexpr Effect kVerdictForSome = {false, true, true};
constexpr Effect kPerhaps = {true, true, false};  // a chain or an extension decides
constexpr Effect kPerhapsForSome = {false, true, false};

void ExpectOpaque(const Effect& effect, const std::vector<std::string>& texts,
                  const std::optional<std::string>& jump = {}) {
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const std::variant<Rule, OpaqueRule> read = Parse(Family::kIPv4, text);
    const OpaqueRule* rule = std::get_if<OpaqueRule>(&read);
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(rule->text, text);
    EXPECT_EQ(rule->unconditional, effect.unconditional);
    EXPECT_EQ(rule->decides, effect.decides);
    EXPECT_EQ(rule->terminal, effect.terminal);
    EXPECT_EQ(rule->jump, jump);
  }
}

TEST(SaveRuleTest, KnowsWhatForeignTargetsDo) {
  ExpectOpaque(kNothing, {"", "-m comment --comment count", "-j NFLOG --nflog-group 1",
                          // There is a chain LOG, too.
                          "-j LOG --log-prefix \"-j DROP \""});
  ExpectOpaque(kNothingOfSome, {"-p tcp"});
  ExpectOpaque(kVerdict,
               {"-j ACCEPT", "-m comment --comment \"a b\" -j ACCEPT", "-j NFQUEUE --queue-num 1",
                "-j REJECT --reject-with icmp-port-unreachable", "-j SNAT --to-source 10.0.0.1"});
  ExpectOpaque(kVerdictForSome,
               {"-p tcp -j DNAT --to-destination 10.0.0.1:80", "-p tcp -j REDIRECT --to-ports 1"});
  ExpectOpaque(kPerhaps, {"-j CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x1", "-j WHATEVER",
                          "-j ELSEWHERE", "-j INPUT"});
  ExpectOpaque(kPerhapsForSome, {"-j", "-j -x"});
  ExpectOpaque(kPerhapsForSome, {"-p tcp -j OTHER"}, "OTHER");
  ExpectOpaque(kVerdict, {"-g OTHER"}, "OTHER");
  ExpectOpaque(kVerdictForSome, {"-i lo -g OTHER"}, "OTHER");
}

TEST(SaveRuleTest, FindsTheTargetAfterUnknownMatches) {
  ExpectOpaque(kPerhapsForSome,
               {"-m recent --rcheck --reap --rsource -j OTHER",
                // Arguments that look like an option of a target.
                "-m hashlimit --hashlimit-name -j --hashlimit-mode srcip -j OTHER",
                "-m hashlimit --hashlimit-name -j -j OTHER", "-m x --name -j ! --y -j OTHER"},
               "OTHER");
  ExpectOpaque(kNothingOfSome, {"-m string --string \"-j OTHER\" --algo bm -j LOG --log-level 4"});
  ExpectOpaque(kVerdictForSome, {"-i -j -o eth0 -j DROP", "-i -s -j DROP", "-o -s -j DROP"});
  ExpectOpaque(kNothing, {"-j LOG --log-prefix -j"});
}

TEST(SaveRuleTest, IsStrictAboutLabels) {
  ExpectOpaque(kVerdictForSome,
               {"-p tcp -m connlabel --label \"3\" -j ACCEPT",
                "-m connlabel --label \"masq\" -j DROP", "-m connlabel --label 3 -j DROP",
                "-m connlabel --label \"03\" -j DROP", "-m connlabel --label \"0x3\" -j DROP",
                "-m connlabel --label \"128\" -j DROP", "-m connlabel --label \"\" -j DROP",
                "-m connlabel --mark \"3\" -j DROP", "! -m connlabel --label \"3\" -j DROP"});
  ExpectOpaque(kNothingOfSome,
               {"-m connlabel --label \"3\"", "-p tcp -m connlabel --label \"3\" --set",
                "-m connlabel --label \"3\" --set -m x", "-m connlabel --label \"-j DROP\" --set",
                "-m connlabel --label \"4294967299\" --set",
                "-m connlabel --label \"3\" -m connlabel --label \"4\" --set"});
}

TEST(SaveRuleTest, IsStrictAboutWhatIsOurs) {
  ExpectOpaque(kVerdictForSome, {"-p tcp -j DROP",
                                 "-i eth+ -j DROP",
                                 "-s 10.0.0.1/8 -j DROP",
                                 "-s 10.0.0.1/255.0.0.255 -j DROP",
                                 "-s fd00::/8 -j DROP",
                                 "-s ! 10.0.0.0/8 -j DROP",
                                 "-s 10.0.0.0/8 -s 10.0.0.0/8 -j DROP",
                                 "-m comment --verse a -j DROP",
                                 "-m conntrack --ctstate NEW -m conntrack --ctstate NEW -j DROP",
                                 "-m mark --mark 0x1g -j DROP",
                                 "-m mark --mark 1 -j DROP",
                                 "-m mark --mark 0x100000000 -j DROP",
                                 "-m mark --mark 0x1/ -j DROP",
                                 "-m conntrack --ctstate -j DROP",
                                 "-m conntrack --ctstate NEW,OLD -j DROP",
                                 "-m conntrack --ctstate NEW,NEW -j DROP",
                                 "-m state --state NEW -j DROP",
                                 "-m conntrack --ctstate NEW --ctdir ORIGINAL -j DROP",
                                 "-m conntrack --ctstatus ASSURED -j DROP",
                                 "--mark 0x1 -j DROP",
                                 "! -m mark --mark 0x1 -j DROP",
                                 "-p tcp -j MASQUERADE --to-ports 1-2"});
  ExpectOpaque(kNothingOfSome, {"-s"});
  ExpectOpaque(kVerdict,
               {"-m comment --comment \"\" -j DROP", "-m comment --comment \"a\" -j DROP",
                "-m comment --comment a:b -j DROP", "-m comment --comment \"a\\n\" -j DROP",
                "-m comment --comment " + std::string(256, 'c') + " -j DROP", "-j DROP --more",
                "-j MASQUERADE --random", "-j DROP -j OTHER"});
  ExpectOpaque(kPerhaps, {"-j OTHER --more", "-j MARK --set-xmark 0x1",
                          "-j MARK --set-xmark 0x1/0x1 --more"});
  ExpectOpaque(kPerhapsForSome, {"-j \"DROP\""});
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

// ---- marks and labels, in every spelling ----

struct MarksRow {
  std::string rule;
  Marks marks;
};

const Marks kAnything = {.tested = kAllMarks, .set = kAllMarks, .labels_set = AllConnLabels()};
const Marks kReplaced = {.set = kAllMarks, .cleared = kAllMarks};

// Of any rule, whether it is one of ours or opaque.
Marks MarksOf(const std::string& text) {
  const SavedChains chains = {{"OTHER", "-"}, {"INPUT", "ACCEPT"}};
  std::vector<absl::string_view> words;
  EXPECT_EQ(SplitSavedRule(text, words), text.size());
  ObservedRule rule;
  rule.content = ParseSavedRule(Family::kIPv4, chains, text);
  return {.tested = MarksTested(rule),
          .set = MarksSet(rule),
          .cleared = MarksCleared(rule),
          .labels_set = LabelsSet(rule)};
}

void ExpectMarks(const std::vector<MarksRow>& rows) {
  for (const MarksRow& row : rows) {
    SCOPED_TRACE(row.rule);
    const Marks marks = MarksOf(row.rule);
    EXPECT_EQ(marks.tested, row.marks.tested);
    EXPECT_EQ(marks.set, row.marks.set);
    EXPECT_EQ(marks.cleared, row.marks.cleared);
    EXPECT_EQ(marks.labels_set, row.marks.labels_set);
  }
}

TEST(SaveMarksTest, ReadsWhichBitsAreTested) {
  ExpectMarks({
      {"-p tcp -m tcp --dport 22 -j ACCEPT", {}},
      {"-m mark --mark 0x4000/0x4000 -j ACCEPT", {.tested = 0x4000}},
      {"-m mark ! --mark 0x4000/0xc000 -j RETURN", {.tested = 0xc000}},
      {"-m mark --mark 0x8000/0x8000 -j DROP", {.tested = 0x8000}},
      {"-m mark --mark 0x1 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 16/16 -j ACCEPT", {.tested = 16}},
      {"-m mark --mark 020/020 -j ACCEPT", {.tested = 16}},
      {"-m mark --mark 0x1/0x100000000 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 0x1/-1 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark all -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j ACCEPT", {.tested = 3}},
      {"-m connmark --mark 0x1/0xff -j ACCEPT", {}},
      {R"(-m comment --comment "-m mark --mark 0x1" -j ACCEPT)", {}},
      {"-m whatever --mark 0x1/0x1 -j ACCEPT",
       {.tested = kAllMarks, .labels_set = AllConnLabels()}},
      {"-m bpf", {.tested = kAllMarks}},
      {"-m bpf --bytecode \"4,48 0 0 9\" -j ACCEPT", {.tested = kAllMarks}},
      {"-m rpfilter --loose -j ACCEPT", {}},
      {"-m rpfilter --validmark -j DROP", {.tested = kAllMarks}},
      {"-m socket --transparent -j ACCEPT", {}},
      {"-p tcp -m socket --restore-skmark -j ACCEPT", kReplaced},
      {"-m socket -m addrtype --restore-skmark -m rpfilter -j ACCEPT --validmark", {}},
      {"-m set --match-set s src -j ACCEPT", {}},
      {"-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xf0", {.tested = 0xff}},
      {"-j CONNMARK --save-mark", {.tested = kAllMarks}},
      {"-j CONNMARK --save-mark --mask 0xff", {.tested = 0xff}},
  });
}

TEST(SaveMarksTest, ReadsWhatIsTurnedOn) {
  ExpectMarks({
      {"-j MARK --set-xmark 0x4000/0x4000", {.set = 0x4000}},
      {"-j MARK --set-xmark 0x4000/0x0", {.set = 0x4000, .cleared = 0x4000}},
      {"-j MARK --set-xmark 0x0/0x4000", {.cleared = 0x4000}},
      {"-p udp -j MARK --set-xmark 0x0/0xffffffff", {.cleared = kAllMarks}},
      {"-p tcp -j MARK --set-xmark 0x3/0x1", {.set = 3, .cleared = 2}},
      {"-p tcp -j MARK --set-xmark 0x3", {.set = 3, .cleared = ~3U}},
      {"-j MARK --set-mark 7", {.set = 7, .cleared = ~7U}},
      {"-j MARK --set-mark 0x10/0xff", {.set = 0x10, .cleared = 0xef}},
      {"-j MARK --or-mark 0x4000", {.set = 0x4000}},
      {"-j MARK --xor-mark 16384", {.set = 0x4000, .cleared = 0x4000}},
      {"-j MARK --and-mark 0xffffbfff", {.cleared = 0x4000}},
      {"-j MARK --set-mark x", {.set = kAllMarks}},
      {"-j MARK --flip-mark 0x1", {.set = kAllMarks}},
      {"-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0xff", {.set = 0xff, .cleared = 0xff}},
      {"-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0x80", {.set = 0x80, .cleared = 0xf0}},
      {"-j CONNMARK --restore-mark", kReplaced},
      {"-j CONNMARK --restore-mark --mask 0xf0000", {.set = 0xf0000, .cleared = 0xf0000}},
      {"-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff --left-shift-mark 8",
       {.set = 0xff00, .cleared = 0xffff}},
      {"-j CONNMARK --restore-mark --right-shift-mark 32", {.set = kAllMarks}},
      {"-j CONNMARK --set-xmark 0x1/0x1", {}},
      {"-j CONNMARK --set-mark 0x1", {}},
      {"-j CONNMARK --what", kAnything},
      {"-p tcp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xff",
       {.set = 1, .cleared = 0xfe}},
      {"-p tcp -j TPROXY --on-port 1", {}},
      {"-j SET --add-set s src", {}},
      {"-j SET --map-set s src --map-mark", {.set = kAllMarks}},
      {"-j NFQUEUE --queue-num 1", kAnything},
      {"-j HMARK --hmark-tuple src --hmark-mod 2 --hmark-offset 1 --hmark-rnd 1", kReplaced},
      {"-j WHATEVER", kAnything},
      {"-j OTHER", {}},
      {"-j -x", {.set = kAllMarks, .labels_set = AllConnLabels()}},
      {"-p tcp", {}},
      {"-p tcp -j MASQUERADE", {}},
  });
}

TEST(SaveMarksTest, ReadsWhichLabelsAreSet) {
  const auto label = [](size_t number) { return Marks{.labels_set = ConnLabelSet().set(number)}; };
  const Marks any = {.labels_set = AllConnLabels()};
  ExpectMarks({
      {"-m connlabel --label \"114\" --set", label(114)},
      {"-m connlabel --label \"114\" -j DROP", {}},
      {"-m connlabel --label \"mine\" -j DROP", {}},
      {"-p tcp -m connlabel --label \"127\" --set -j ACCEPT", label(127)},
      {"-m connlabel --set 5 -j ACCEPT", any},
      {"-m connlabel ! --label \"7\" --set -j ACCEPT", label(7)},
      {"-m connlabel --label 0x10 --set -j ACCEPT", label(16)},
      {"-m connlabel --label \"mine\" --set -j ACCEPT", any},
      {"-m connlabel --label \"128\" --set -j ACCEPT", any},
      {"-m connlabel --label \"9\" -m set --set -j ACCEPT", {}},
      {"-m connlabel --label \"1\" --set -m connlabel --label \"2\" --set",
       {.labels_set = ConnLabelSet().set(1).set(2)}},
  });
}

}  // namespace
}  // namespace kipt::agent
