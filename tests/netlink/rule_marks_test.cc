// SPDX-License-Identifier: Apache-2.0
//
// What rules have to do with the packet's mark.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/reach.h"
#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::netlink::rule_marks_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  std::string shown;
};

// "tested set", and "-cleared" where a bit is, in hexadecimal; and which labels are set.
std::string Marks(const std::vector<Bytes>& expressions) {
  const absl::StatusOr<ObservedRule> rule = DecodeRule(RuleMessage(Family::kIPv4, expressions));
  EXPECT_TRUE(rule.ok()) << rule.status();
  std::string text = absl::StrCat(absl::Hex(MarksTested(*rule)), " ", absl::Hex(MarksSet(*rule)));
  if (const uint32_t cleared = MarksCleared(*rule); cleared != 0) {
    absl::StrAppend(&text, " -", absl::Hex(cleared));
  }
  const ConnLabelSet labels = LabelsSet(*rule);
  if (labels.all()) return text + ", all labels";
  for (size_t label = 0; label < labels.size(); ++label) {
    if (labels.test(label)) absl::StrAppend(&text, ", label ", label);
  }
  return text;
}

TEST(RuleMarksTest, KnowsWhichMarksARuleTestsAndSets) {
  const Bytes mark = Meta(3);
  const Bytes store = SetMeta(3);
  const auto flip = [](uint32_t mask, uint32_t bits) { return Flip(HostU32(mask), HostU32(bits)); };
  const Bytes connection = Ct(3);
  const auto other = [](const std::string& name) { return ExpressionBytes(name, Attr(1, 1)); };
  const std::vector<Row> rows = {
      {"none", List(Verdict(1)), "0 0"},
      {"a test", List(mark, Compare(HostU32(1))), "ffffffff 0"},
      {"a masked test", List(mark, Mask(HostU32(0x8000)), Compare(HostU32(0))), "8000 0"},
      {"two tests",
       List(XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), mark, Mask(HostU32(2)), Compare(HostU32(2))),
       "3 0"},
      {"a flipped test", List(mark, flip(0xff, 1), Compare(HostU32(0))), "ff 0"},
      {"a load for nothing", List(mark), "ffffffff 0"},
      {"a load for a set", List(mark, Lookup("s")), "ffffffff 0"},
      {"a value", List(Immediate(HostU32(0x4000)), store), "0 4000 -ffffbfff"},
      {"bits of the mark", List(mark, flip(~0x4000U, 0x4000), store), "0 4000"},
      {"fewer bits of the mark", List(mark, Mask(HostU32(0xff)), store), "0 0 -ffffff00"},
      {"the connection's mark", List(connection, store), "0 ffffffff -ffffffff"},
      {"a bit of the connection's mark", List(connection, Mask(HostU32(0x80)), store),
       "0 80 -ffffffff"},
      {"the same and a constant", List(connection, flip(0x80, 0x4000), store), "0 4080 -ffffbfff"},
      {"the same in another register", List(mark, Ct(3, 2), Mask(HostU32(0xff)), store),
       "0 0 -ffffff00"},
      {"the mark, saved", List(mark, Mask(HostU32(0x4000)), SetCt(3)), "4000 0"},
      {"an unknown value", List(other("numgen"), store), "0 ffffffff -ffffffff"},
      {"a value made of the mark",
       List(mark, ExpressionBytes("byteorder", Join({Attr(1, 1), Attr(2, 1)})), store),
       "ffffffff ffffffff"},
      {"a value of another length", List(Immediate({1}), store), "0 ffffffff"},
      {"an xtables target", List(XtTarget("MARK", 2, XtSetMarkInfo(0x4000, 0xc000))),
       "0 4000 -8000"},
      {"two targets",
       List(XtTarget("MARK", 2, XtSetMarkInfo(1, 1)), XtTarget("MARK", 2, XtSetMarkInfo(2, 2))),
       "0 3"},
      {"an older target", List(XtTarget("MARK", 1, XtSetMarkInfo(1, 1))), "0 ffffffff"},
      {"an unknown target", List(XtTarget("BRANDNEW", 0, Zeros(8))),
       "ffffffff ffffffff, all labels"},
      {"an unknown match", List(XtMatch("brandnew", 0, Zeros(8))), "ffffffff 0, all labels"},
      {"an unknown expression", List(ExpressionBytes("brandnew", {})),
       "ffffffff ffffffff, all labels"},
      {"a broken expression", List(Attr(1, FromHex("ffff"))), "ffffffff ffffffff, all labels"},
      {"a queue", List(Verdict(3)), "ffffffff ffffffff, all labels"},
      {"a queue's number", List(Verdict(0x50003)), "ffffffff ffffffff, all labels"},
      {"another value of the packet", List(Immediate(HostU32(1)), SetMeta(2)), "0 0"},
      {"a test, and a set of marks", List(mark, Mask(HostU32(1)), Compare(HostU32(1)), Lookup("s")),
       "1 0"},
      {"a mark and an address, for a set", List(Payload(1, 12, 4, 8), Meta(3, 9), Lookup("s", 8)),
       "ffffffff 0"},
      {"an object", List(ExpressionBytes("objref", {})), "0 0"},
      {"a route by the mark",
       List(ExpressionBytes("fib", Join({Attr(1, 1), Attr(2, 1), Attr(3, 4)}))), "ffffffff 0"},
      {"a route", List(ExpressionBytes("fib", Join({Attr(1, 1), Attr(2, 1), Attr(3, 1)}))), "0 0"},
  };
  for (const Row& row : rows) EXPECT_EQ(Marks(row.expressions), row.shown) << row.name;
  // No later expression can read more of the mark than the mask has left.
  for (const char* name : {"reject", "limit", "quota", "ct", "fib", "masq", "nat", "redir", "log",
                           "numgen", "rt", "connlimit", "notrack", "meta", "lookup"}) {
    EXPECT_EQ(Marks({mark, Mask(HostU32(0x2000)), Compare(HostU32(0x2000)), other(name)}),
              absl::string_view(name) == "meta" ? "ffffffff 0" : "2000 0")
        << name;
  }
}

TEST(RuleMarksTest, KnowsWhatXtablesDoWithMarks) {
  // xt_connmark_tginfo1 ends with the mode; xt_connmark_tginfo2 has a shift before it.
  const auto connmark = [](uint32_t revision, const Bytes& end) {
    return XtTarget("CONNMARK", revision, Join({HostU32(1), HostU32(0x10), HostU32(0x20), end}));
  };
  const auto set = [](uint32_t revision, uint32_t flags) {
    return XtTarget("SET", revision, Join({Zeros(12), HostU32(flags), Zeros(8)}));
  };
  const std::vector<Row> rows = {
      {"socket", List(XtMatch("socket", 0, {})), "0 0"},
      {"socket 1", List(XtMatch("socket", 1, {1})), "0 0"},
      {"socket 1 that restores", List(XtMatch("socket", 1, {4})), "0 ffffffff -ffffffff"},
      {"socket 3", List(XtMatch("socket", 3, {3})), "0 0"},
      {"socket 3 that restores", List(XtMatch("socket", 3, {4})), "0 ffffffff -ffffffff"},
      {"socket 3 with another flag", List(XtMatch("socket", 3, {8})), "0 ffffffff"},
      {"socket 3 without flags", List(XtMatch("socket", 3, {})), "0 ffffffff"},
      {"socket 4", List(XtMatch("socket", 4, {0})), "0 ffffffff"},
      {"rpfilter", List(XtMatch("rpfilter", 0, {1})), "0 0"},
      {"rpfilter by the mark", List(XtMatch("rpfilter", 0, {2})), "ffffffff 0"},
      {"CONNMARK that sets", List(connmark(1, {0, 0, 0, 0})), "0 0"},
      {"CONNMARK that saves", List(connmark(1, {1, 0, 0, 0})), "20 0"},
      {"CONNMARK that restores", List(connmark(1, {2, 0, 0, 0})), "0 10 -30"},
      {"CONNMARK 2 that restores", List(connmark(2, {0, 0, 2, 0})), "0 10 -30"},
      {"CONNMARK 2 that shifts", List(connmark(2, {0, 2, 2, 0})), "0 40 -60"},
      {"CONNMARK 2 that shifts right", List(connmark(2, {1, 1, 2, 0})), "0 8 -28"},
      {"SET 0", List(set(0, 0x100)), "0 0"},
      {"SET 0 of any bytes", List(XtTarget("SET", 0, Bytes(24, 1))), "0 0"},
      {"SET 1 of any bytes", List(XtTarget("SET", 1, Bytes(40, 1))), "0 0"},
      {"SET 2", List(set(2, 0x100)), "0 0"},
      {"SET 3", List(set(3, 0x3)), "0 0"},
      {"SET 3 that maps", List(set(3, 0x100)), "0 ffffffff"},
      {"SET 4", List(set(4, 0)), "0 ffffffff"},
      {"SET 3 without its struct", List(XtTarget("SET", 3, {})), "0 ffffffff"},
      {"mark", List(XtMatch("mark", 1, XtMarkInfo(1, 3, 0))), "3 0"},
      {"mark 0", List(XtMatch("mark", 0, XtMarkInfo(1, 3, 0))), "ffffffff 0"},
      {"half a mark", List(XtMatch("mark", 1, Zeros(4))), "ffffffff 0"},
      {"connmark", List(XtMatch("connmark", 1, Zeros(16))), "0 0"},
      {"a program", List(XtMatch("bpf", 1, {})), "ffffffff 0"},
      {"MARK", List(XtTarget("MARK", 2, XtSetMarkInfo(5, 7))), "0 5 -2"},
      {"CONNMARK 2 of an unknown mode", List(connmark(2, {0, 0, 3, 0})),
       "ffffffff ffffffff, all labels"},
      {"CONNMARK 3", List(connmark(3, {0, 0, 0, 0})), "ffffffff ffffffff, all labels"},
      {"TOS", List(XtTarget("TOS", 1, {})), "0 0"},
      {"NFQUEUE", List(XtTarget("NFQUEUE", 3, {})), "ffffffff ffffffff, all labels"},
      {"HMARK", List(XtTarget("HMARK", 0, {})), "0 ffffffff -ffffffff"},
      {"the target of ebtables", List(XtTarget("mark", 0, {})), "ffffffff ffffffff, all labels"},
      {"TPROXY 0", List(XtTarget("TPROXY", 0, Join({HostU32(0xff), HostU32(0x10), Zeros(8)}))),
       "0 10 -ef"},
  };
  for (const Row& row : rows) EXPECT_EQ(Marks(row.expressions), row.shown) << row.name;
}

TEST(RuleMarksTest, KnowsWhichLabelsARuleMaySet) {
  const auto label = [](uint16_t number, uint16_t options) {
    return XtMatch("connlabel", 0, XtConnLabelInfo(number, options));
  };
  const Bytes value = Immediate(Zeros(16));
  const std::vector<Row> rows = {
      {"a test", List(label(114, 0), Verdict(0)), "0 0"},
      {"a label, in a rule of ours", List(label(114, 2)), "0 0, label 114"},
      {"the first", List(label(0, 2)), "0 0, label 0"},
      {"the last, negated", List(label(127, 3)), "0 0, label 127"},
      {"a label beyond the last", List(label(128, 2)), "0 0, all labels"},
      {"half a label", List(XtMatch("connlabel", 0, {3, 0})), "0 0, all labels"},
      {"a label of later", List(XtMatch("connlabel", 1, XtConnLabelInfo(3, 0))), "0 0, all labels"},
      {"two", List(label(5, 2), XtMatch("socket", 1, {0}), label(64, 2)), "0 0, label 5, label 64"},
      {"ct label set", List(value, SetCt(13)), "0 0, all labels"},
      {"ct mark set", List(value, SetCt(3)), "0 0"},
      {"ct, no key", List(value, ExpressionBytes("ct", Attr(4, 1))), "0 0, all labels"},
      {"a test of nft's", List(Ct(13), Compare(HostU32(1))), "0 0"},
  };
  for (const Row& row : rows) EXPECT_EQ(Marks(row.expressions), row.shown) << row.name;
}

ChainId Chain(const std::string& name) { return {Family::kIPv4, Table::kFilter, name}; }

OpaqueRule Verdict(bool unconditional, bool returns = false) {
  return {.unconditional = unconditional, .decides = true, .terminal = true, .returns = returns};
}
OpaqueRule To(const std::string& chain, bool unconditional = true, bool is_goto = false) {
  return {.jump = chain, .unconditional = unconditional, .decides = true, .terminal = is_goto};
}

struct Ruleset {
  std::string name;
  std::map<std::string, std::vector<std::variant<Rule, OpaqueRule>>> chains;
  // Whether no packet passes a jump to A, and whether every packet in A comes to B.
  bool stops = false;
  bool leads = false;
};

TEST(ReachTest, FollowsWhatEveryPacketDoes) {
  const Ruleset rows[] = {
      {"a verdict", {{"A", {Verdict(true)}}}, true},
      {"a verdict for some", {{"A", {Verdict(false)}}}},
      {"a return", {{"A", {Verdict(true, true), Verdict(true)}}}},
      {"a return for some", {{"A", {Verdict(false, true), Verdict(true)}}}},
      {"a verdict before the return", {{"A", {Verdict(true), Verdict(true, true)}}}, true},
      {"a verdict in another chain", {{"A", {To("B")}}, {"B", {Verdict(true)}}}, true, true},
      {"another chain for some", {{"A", {To("B", false)}}, {"B", {Verdict(true)}}}},
      {"a goto", {{"A", {To("B", true, true), Verdict(true)}}, {"B", {}}}, false, true},
      {"a goto to a verdict", {{"A", {To("B", true, true)}}, {"B", {Verdict(true)}}}, true, true},
      {"a goto for some, from where they come back",
       {{"A", {To("B", false, true), Verdict(true)}}, {"B", {}}}},
      {"a goto for some, from where they do not",
       {{"A", {To("B", false, true), Verdict(true)}}, {"B", {Verdict(true)}}},
       true},
      {"a return two chains on",
       {{"A", {To("B"), Verdict(true)}}, {"B", {Verdict(true, true)}}},
       true,
       true},
      {"by way of a third", {{"A", {To("C")}}, {"C", {Verdict(false), To("B")}}}, false, true},
      {"after a third that keeps all", {{"A", {To("C"), To("B")}}, {"C", {Verdict(true)}}}, true},
      {"after a goto", {{"A", {To("C", true, true), To("B")}}, {"C", {}}}},
      {"a circle", {{"A", {To("C")}}, {"C", {To("A"), To("B")}}}, false, true},
      {"a chain that was not read", {{"A", {To("C")}}}},
      {"a drop of ours", {{"A", {Rule{.target = Drop{}}}}}, true},
      {"a return of ours", {{"A", {Rule{.target = Return{}}, Rule{.target = Drop{}}}}}},
      {"a log", {{"A", {OpaqueRule{.unconditional = true, .decides = false}}}}},
  };
  for (const Ruleset& row : rows) {
    SCOPED_TRACE(row.name);
    Snapshot snapshot;
    for (const auto& [name, rules] : row.chains) {
      for (const auto& rule : rules) {
        snapshot.chains[Chain(name)].rules.push_back({.content = rule});
      }
    }
    Walk walk(snapshot);
    const ObservedRule jump = {.content = To("A")};
    EXPECT_EQ(walk.Stops(Chain("INPUT"), jump), row.stops);
    EXPECT_FALSE(walk.Stops(Chain("INPUT"), {.content = To("A", false)}));
    EXPECT_EQ(walk.Leads(Chain("A"), Chain("B")), row.leads);
  }
}

TEST(ReachTest, AsksOfABaseChainForWhatComesBeforeAJumpAndOfAUserChainForAll) {
  const std::set<ChainId> read = {Chain("INPUT"), Chain("USER")};
  const auto asked_for = [&](const std::string& followed, const std::vector<OpaqueRule>& rules) {
    const std::vector<ChainQuery> queries = {
        {.chain = Chain("INPUT"), .follow = followed == "INPUT"},
        {.chain = Chain("USER"), .follow = followed == "USER"}};
    std::map<ChainId, ObservedChain> chains;
    for (const OpaqueRule& rule : rules) {
      chains[Chain(followed)].rules.push_back({.content = rule});
    }
    chains[Chain(followed == "USER" ? "INPUT" : "USER")].rules.push_back({.content = To("Z")});
    return ChainsOnTheWay(chains, queries, read);
  };
  EXPECT_THAT(asked_for("INPUT", {To("A")}), ElementsAre(Chain("A"))) << "the way may lead there";
  EXPECT_THAT(asked_for("INPUT", {To("A"), To("USER", false)}), ElementsAre(Chain("A")));
  EXPECT_THAT(asked_for("INPUT", {To("USER"), To("A")}), ElementsAre(Chain("Z"))) << "not after";
  EXPECT_THAT(asked_for("INPUT", {}), IsEmpty());
  EXPECT_THAT(asked_for("INPUT", {To("USER")}), ElementsAre(Chain("Z"))) << "and its own way";
  EXPECT_THAT(asked_for("USER", {To("A")}), ElementsAre(Chain("A")));
}

TEST(ReachTest, AsksForTheChainsBeforeTheJumpAndNoOthers) {
  const std::vector<ChainQuery> queries = {
      {.chain = Chain("INPUT"), .follow = true},
      {.chain = Chain("KUBE-FIREWALL"), .follow = true},
      {.chain = Chain("KUBE-SERVICES"), .with_rules = false},
      {.chain = Chain("OUTPUT")},
  };
  std::set<ChainId> read = {Chain("INPUT"), Chain("KUBE-FIREWALL"), Chain("OUTPUT")};
  std::map<ChainId, ObservedChain> chains;
  const auto put = [&](const std::string& chain, const std::vector<OpaqueRule>& rules) {
    for (const OpaqueRule& rule : rules) chains[Chain(chain)].rules.push_back({.content = rule});
  };
  put("INPUT", {To("KUBE-SERVICES"), To("SOME", false), To("A"), To("KUBE-FIREWALL"), To("AFTER")});
  put("KUBE-FIREWALL", {To("B"), Verdict(true), To("NEVER")});
  put("OUTPUT", {To("C"), To("KUBE-FIREWALL")});
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), ElementsAre(Chain("A"), Chain("B")));
  put("A", {To("D"), To("A")});
  read.insert({Chain("A"), Chain("B")});
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), ElementsAre(Chain("D")));
  read.insert(Chain("D"));
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), IsEmpty());
}

}  // namespace
}  // namespace kipt::netlink::rule_marks_test
