// SPDX-License-Identifier: Apache-2.0
//
// Wire to Rule: every form that is accepted, and similar forms that are not.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/listed_rules.h"
#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::rule_decode_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

constexpr uint32_t kNetwork = 1;
constexpr uint32_t kMetaMark = 3;
constexpr uint32_t kNotEqual = 1;

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  std::string text = {};  // of the Rule; empty where the rule must be opaque
  Family family = Family::kIPv4;
  Bytes more = {};
};

// The rule's text, or "opaque: TEXT".
std::string Decoded(const Row& row) {
  const absl::StatusOr<ObservedRule> rule =
      DecodeRule(RuleMessage(row.family, row.expressions, row.more));
  if (!rule.ok()) return rule.status().ToString();
  EXPECT_EQ(rule->handle, 7U);
  if (rule->rule() != nullptr) return ToString(row.family, *rule->rule());
  return "opaque: " + rule->opaque()->text;
}

void ExpectDecoded(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    if (row.text.empty()) {
      EXPECT_THAT(Decoded(row), StartsWith("opaque: "));
    } else {
      EXPECT_EQ(Decoded(row), row.text);
    }
  }
}

TEST(DecodeRuleTest, NeedsAFamilyAndAHandle) {
  const Bytes good = RuleMessage(Family::kIPv4, {Verdict(0)});
  for (size_t length = 0; length < 20; ++length) {
    EXPECT_THAT(DecodeRule(absl::MakeConstSpan(good.data(), length)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  Bytes bridge = good;
  bridge[16] = 7;
  EXPECT_THAT(DecodeRule(bridge), StatusIs(absl::StatusCode::kDataLoss));
  const Bytes no_handle = Join({Bytes(good.begin(), good.begin() + 20), Attr(1, Text("filter"))});
  EXPECT_THAT(DecodeRule(no_handle), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(DecodeRuleTest, ReadsEveryFormOfAnAddress) {
  const Bytes drop = Verdict(0);
  ExpectDecoded({
      {"four bytes under a mask",
       List(Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000")),
            drop),
       "-s 127.0.0.0/8 -j DROP"},
      {"a mask with its operation",
       List(Payload(kNetwork, 16, 4), MaskWithOp(FromHex("fff80000")), Compare(FromHex("0a080000")),
            drop),
       "-d 10.8.0.0/13 -j DROP"},
      {"one byte", List(Payload(kNetwork, 12, 1), Compare(FromHex("7f"), kNotEqual), drop),
       "! -s 127.0.0.0/8 -j DROP"},
      {"three bytes under a mask",
       List(Payload(kNetwork, 16, 3), Mask(FromHex("fffff0")), Compare(FromHex("c0a8f0")), drop),
       "-d 192.168.240.0/20 -j DROP"},
      {"both, destination first, in other registers",
       List(Payload(kNetwork, 16, 4, 9), Mask(FromHex("ff000000"), 9, 2),
            Compare(FromHex("7f000000"), 0, 2), Payload(kNetwork, 12, 1, 4),
            Compare(FromHex("7f"), kNotEqual, 4), drop),
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP"},
      {"both loaded, then both compared",
       List(Payload(kNetwork, 12, 4, 8), Payload(kNetwork, 16, 4, 9),
            Compare(FromHex("01010101"), 0, 8), Compare(FromHex("02020202"), 0, 9), drop),
       "-s 1.1.1.1/32 -d 2.2.2.2/32 -j DROP"},
      {"IPv6",
       List(Payload(kNetwork, 8, 16), Mask(Join({FromHex("fffe"), Zeros(14)})),
            Compare(Join({FromHex("fd00"), Zeros(14)})), drop),
       "-s fd00::/15 -j DROP", Family::kIPv6},
  });
}

TEST(DecodeRuleTest, ReadsBothFormsOfAMark) {
  const Bytes drop = Verdict(0);
  const Bytes bit = HostU32(0x8000);
  ExpectDecoded({
      {"xtables", List(XtMatch("mark", 1, XtMarkInfo(0x8000, 0x8000, 0)), drop),
       "-m mark --mark 0x8000/0x8000 -j DROP"},
      {"xtables, negated", List(XtMatch("mark", 1, XtMarkInfo(0x4000, 0x4000, 1)), drop),
       "-m mark ! --mark 0x4000/0x4000 -j DROP"},
      {"xtables, all bits", List(XtMatch("mark", 1, XtMarkInfo(1, 0xffffffff, 1)), drop),
       "-m mark ! --mark 0x1 -j DROP"},
      {"native", List(Meta(kMetaMark), Mask(bit), Compare(bit), drop),
       "-m mark --mark 0x8000/0x8000 -j DROP"},
      {"native, negated, in small registers",
       List(Meta(kMetaMark, 10), Mask(bit, 10, 11), Compare(bit, kNotEqual, 11), drop),
       "-m mark ! --mark 0x8000/0x8000 -j DROP", Family::kIPv6},
      {"native, a mask of any shape",
       List(Meta(kMetaMark), Mask(HostU32(0x5)), Compare(HostU32(0x1)), drop),
       "-m mark --mark 0x1/0x5 -j DROP"},
      {"both", List(Meta(kMetaMark), Compare(bit), XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), drop)},
      {"of another revision", List(XtMatch("mark", 2, XtMarkInfo(0x8000, 0x8000, 0)), drop)},
  });
}

// Rows: the rule of iptables, or nothing where one expression differs from nft's.
TEST(DecodeRuleTest, ReadsWhatNftLoadsOfItsOwnListingOfIptablesRules) {
  const Bytes drop = Verdict(0);
  const Bytes status = Ct(2);
  const Bytes dnat = Mask(HostU32(0x20));
  const Bytes any = Compare(Zeros(4), kNotEqual);
  const Bytes set_mark = SetMeta(kMetaMark);
  const Bytes or_bit = Flip(HostU32(~0x4000U), HostU32(0x4000));
  const Bytes masquerade = ExpressionBytes("masq", {});
  const Bytes random = ExpressionBytes("masq", Attr(1, 0x10));
  const Bytes label = FromHex("08000000000000000000000000000000");
  const Bytes has_label = Join({Ct(13), Mask(label), Compare(Zeros(16), kNotEqual)});
  const Bytes set_label = Join({Immediate(label), SetCt(13)});
  const Bytes local = Join({Payload(kNetwork, 16, 1), Compare({127})});
  const Bytes count = CounterBytes();
  const Bytes mark = Join({Meta(kMetaMark), Mask(HostU32(0x4000)), Compare(HostU32(0x4000))});
  const std::vector<Row> rows = {
      {"ct status", List(local, status, dnat, any, count, drop),
       "-d 127.0.0.0/8 -m conntrack --ctstate DNAT -j DROP"},
      {"mark", List(count, Meta(kMetaMark), or_bit, set_mark), "-j MARK --set-xmark 0x4000/0x4000"},
      {"masquerade", List(count, masquerade), "-j MASQUERADE"},
      {"randomly", List(mark, count, random),
       "-m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully"},
      {"with a comment", List(count, random), "-m comment --comment c -j MASQUERADE --random-fully",
       Family::kIPv4, UserDataComment("c")},
      {"label", List(has_label, count, random),
       "-m connlabel --label \"3\" -j MASQUERADE --random-fully"},
      {"set a label", List(set_label, has_label, count), "-m connlabel --label \"3\" --set"},
      {"no counter", List(local, status, dnat, any, drop)},
      {"two counters", List(count, count, random)},
      {"a counter in another place", List(random, count)},
      {"snat", List(local, status, Mask(HostU32(0x10)), any, count, drop)},
      {"either", List(local, status, Mask(HostU32(0x30)), any, count, drop)},
      {"negated", List(local, status, dnat, Compare(Zeros(4)), count, drop)},
      {"another order", List(status, dnat, any, local, count, drop)},
      {"accepts", List(local, status, dnat, any, count, Verdict(1))},
      {"one match more",
       List(local, Meta(6), Compare(Text("eth0")), status, dnat, any, count, drop)},
      {"an unknown expression",
       List(local, status, dnat, any, ExpressionBytes("log", {}), count, drop)},
      {"other metadata", List(count, Meta(4), or_bit, set_mark)},
      {"a constant mark", List(count, Immediate(HostU32(1)), set_mark)},
      {"to ports", List(count, ExpressionBytes("masq", Attr(2, 1)))},
      {"persistent", List(count, ExpressionBytes("masq", Attr(1, 0x18)))},
      {"two labels", List(Ct(13), Mask(FromHex("0c000000000000000000000000000000")),
                          Compare(Zeros(16), kNotEqual), count, random)},
      {"sets another label",
       List(set_label, Ct(13), Mask(FromHex("04000000000000000000000000000000")),
            Compare(Zeros(16), kNotEqual), count)},
      {"-p for an xtables match", List(count, random), "", Family::kIPv4,
       Attr(5, Join({Attr(1, 6), Attr(2, 0)}))},
  };
  for (const Row& row : rows) {
    const auto rule = DecodeRule(RuleMessage(Family::kIPv4, row.expressions, row.more));
    ASSERT_THAT(rule, IsOk()) << row.name;
    ASSERT_NE(rule->opaque(), nullptr) << row.name << ": never one of ours";
    const OpaqueRule& opaque = *rule->opaque();
    EXPECT_TRUE(rule->unlistable) << row.name;
    EXPECT_EQ(opaque.translated ? ToString(Family::kIPv4, opaque.known) : "", row.text) << row.name;
    if (opaque.translated) EXPECT_EQ(opaque.target, TargetName({.content = opaque.known}));
  }
  const auto lost_all = DecodeRule(RuleMessage(Family::kIPv4, {count}));
  EXPECT_TRUE(lost_all.ok() && lost_all->opaque() != nullptr && lost_all->opaque()->translated);
}

TEST(DecodeRuleTest, ReadsCommentsWhereverTheyAre) {
  const Bytes drop = Verdict(0);
  const Bytes comment = XtMatch("comment", 0, XtCommentInfo("two words"));
  const std::string text = "-m comment --comment \"two words\" -j DROP";
  ExpectDecoded({
      {"match", List(comment, drop), text},
      {"user data", List(drop), text, Family::kIPv4, UserDataComment("two words")},
      {"user data without NUL", List(drop), "-m comment --comment ab -j DROP", Family::kIPv4,
       Attr(7, Bytes{0, 2, 'a', 'b'})},
      {"after other user data", List(drop), "-m comment --comment a -j DROP", Family::kIPv4,
       Attr(7, Bytes{2, 1, 'x', 0, 2, 'a', 0})},
      {"user data that is none", List(drop), "-j DROP", Family::kIPv4,
       Attr(7, Bytes{9, 2, 'a', 'b'})},
      {"user data that is cut off", List(drop), "-j DROP", Family::kIPv4,
       Attr(7, Bytes{0, 9, 'a'})},
      {"an empty comment", List(drop), "-j DROP", Family::kIPv4, UserDataComment("")},
      {"a control character", List(drop), "-m comment --comment \"\x01\" -j DROP", Family::kIPv4,
       UserDataComment("\x01")},
      {"two matches", List(comment, comment, drop)},
      {"match and user data", List(comment, drop), "", Family::kIPv4, UserDataComment("two words")},
      {"an empty match", List(XtMatch("comment", 0, Zeros(256)), drop)},
      {"an endless match", List(XtMatch("comment", 0, Bytes(256, 'x')), drop)},
      {"another revision", List(XtMatch("comment", 1, XtCommentInfo("two words")), drop)},
  });
}

TEST(DecodeRuleTest, SpellsARuleForASurveyInTheOrderOfItsMatches) {
  const Bytes comment = XtMatch("comment", 0, XtCommentInfo("a"));
  const Bytes mark = XtMatch("mark", 1, XtMarkInfo(1, 0xffffffff, 0));
  const Bytes state = XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2));
  const Bytes source = Payload(1, 12, 4);
  const Bytes is_ten = Compare({10, 0, 0, 1});
  struct Row {
    std::string name;
    std::vector<Bytes> matches;
    std::string spelling;  // empty: as ToString(Rule)
    std::string printed;
    Bytes more = {};
  };
  const std::string canonical = "-m comment --comment a -m mark --mark 0x1 -j DROP";
  const std::string marked_first = "-m mark --mark 0x1 -m comment --comment a -j DROP";
  const std::string state_first =
      "-m conntrack --ctstate ESTABLISHED -m comment --comment a -j DROP";
  for (const Row& row : std::vector<Row>{
           {"ours", {comment, mark}, "", canonical},
           {"the mark first", {mark, comment}, marked_first, marked_first},
           {"an address between",
            {comment, source, is_ten, mark},
            "",
            "-s 10.0.0.1/32 " + canonical},
           {"the state first", {state, comment}, state_first, state_first},
           {"user data", {mark}, marked_first, marked_first, UserDataComment("a")},
           {"only user data", {}, "", "-m comment --comment a -j DROP", UserDataComment("a")},
       }) {
    std::vector<Bytes> expressions = row.matches;
    expressions.push_back(CounterBytes());
    expressions.push_back(Verdict(0));
    const auto rule =
        DecodeRule(RuleMessage(Family::kIPv4, expressions, row.more), DecodeFor::kSurvey);
    ASSERT_TRUE(rule.ok() && rule->rule() != nullptr) << row.name;
    EXPECT_EQ(rule->spelling, row.spelling) << row.name;
    EXPECT_EQ(ToString({"ip", "filter"}, *rule), row.printed) << row.name;
  }
}

TEST(DecodeRuleTest, ReadsEveryTargetOfTheVocabulary) {
  const Bytes count = CounterBytes();
  ExpectDecoded({
      {"drop", List(count, Verdict(0)), "-j DROP"},
      {"return", List(count, Verdict(-5)), "-j RETURN"},
      {"jump", List(Verdict(-3, "X"), count), "-j X"},
      {"mark", List(count, XtTarget("MARK", 2, XtSetMarkInfo(0x4000, 0))),
       "-j MARK --set-xmark 0x4000/0x0"},
      {"a whole mark", List(XtTarget("MARK", 2, XtSetMarkInfo(1, 0xffffffff))),
       "-j MARK --set-xmark 0x1/0xffffffff"},
      {"states in the order of libxt_conntrack",
       List(XtMatch("conntrack", 3, XtCtStateInfo(1, 1, 0x1cf)), Verdict(0)),
       "-m conntrack ! --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j DROP"},
      {"masquerade", List(XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x10))),
       "-j MASQUERADE --random-fully"},
      {"masquerade of IPv6", List(XtTarget("MASQUERADE", 0, XtMasqueradeInfo6(0))), "-j MASQUERADE",
       Family::kIPv6},
      {"matches in another order",
       List(XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)),
            XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), count,
            XtMatch("comment", 0, XtCommentInfo("c")), Verdict(0)),
       "-m comment --comment c -m mark --mark 0x1/0x1 -m conntrack --ctstate ESTABLISHED -j DROP"},
  });
}

TEST(DecodeRuleTest, LeavesEverythingElseOpaque) {
  const Bytes drop = Verdict(0);
  const Bytes mark = XtMatch("mark", 1, XtMarkInfo(1, 1, 0));
  const Bytes address = Compare(FromHex("7f000000"));
  ExpectDecoded({
      {"a mask with a hole in a byte",
       List(Payload(kNetwork, 12, 4), Mask(FromHex("fd000000")), address, drop)},
      {"masked twice", List(Payload(kNetwork, 12, 4), Mask(FromHex("ffff0000")),
                            Mask(FromHex("ff000000")), address, drop)},
      {"a shorter mask",
       List(Payload(kNetwork, 12, 4), Mask(FromHex("ff00")), Compare(FromHex("7f00")), drop)},
      {"shifted",
       List(Payload(kNetwork, 12, 4), MaskWithOp(FromHex("ff000000"), 1), address, drop)},
      {"flipped bits", List(Payload(kNetwork, 12, 4),
                            Flip(FromHex("ff000000"), FromHex("01000000")), address, drop)},
      {"less than", List(Payload(kNetwork, 12, 4), Compare(FromHex("7f000000"), 2), drop)},
      {"twice the source", List(Payload(kNetwork, 12, 1), Compare({10}), Payload(kNetwork, 12, 1),
                                Compare({11}, kNotEqual), drop)},
      {"compared twice", List(Payload(kNetwork, 12, 1), Compare({10}), Compare({10}), drop)},
      {"masked only", List(Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), drop)},
      {"written", List(ExpressionBytes("payload", Join({Attr(5, 1), Attr(2, 1), Attr(3, 12),
                                                        Attr(4, 4), Attr(1, 1)})),
                       address, drop)},
      {"continue", List(Verdict(-1))},
      {"jump to nowhere", List(Verdict(-3))},
      {"two targets", List(drop, Verdict(-5))},
      {"a target and a verdict", List(XtTarget("MARK", 2, XtSetMarkInfo(1, 1)), drop)},
      {"a match after the target", List(drop, mark)},
      {"two states", List(XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)),
                          XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)), drop)},
      {"-m state", List(XtMatch("conntrack", 3, XtCtStateInfo(0x2001, 0, 2)), drop)},
      {"native state", List(Ct(0), Mask(HostU32(2)), Compare(Zeros(4), kNotEqual), drop)},
      {"MARK of another revision", List(XtTarget("MARK", 1, XtSetMarkInfo(1, 1)))},
      {"a target that is named as a match", List(XtMatch("MARK", 2, XtSetMarkInfo(1, 1)), drop)},
      {"an attribute that we do not know in match",
       List(ExpressionBytes("match", Join({Attr(1, Text("mark")), Attr(2, 1),
                                           Attr(3, XtMarkInfo(1, 1, 0)), Attr(4, 1)})),
            drop)},
  });
}

TEST(DecodeConnLabelTest, ReadsLabelsOfConnections) {
  const Bytes drop = Verdict(0);
  const Bytes count = CounterBytes();
  const auto label = [](uint16_t number, uint16_t options) {
    return XtMatch("connlabel", 0, XtConnLabelInfo(number, options));
  };
  ExpectDecoded({
      {"tested", List(label(0, 0), count, drop), "-m connlabel --label \"0\" -j DROP"},
      {"not", List(label(127, 1), count, drop), "-m connlabel ! --label \"127\" -j DROP",
       Family::kIPv6},
      {"set, and nothing else", List(label(114, 2), count), "-m connlabel --label \"114\" --set"},
      {"set without a counter", List(label(1, 2)), "-m connlabel --label \"1\" --set"},
      {"set, and where that could be done a target", List(label(1, 2), count, Verdict(-3, "X")),
       "-m connlabel --label \"1\" --set -j X", Family::kIPv6},
      {"set, and where it could not be done a target", List(label(1, 3), drop),
       "-m connlabel ! --label \"1\" --set -j DROP"},
      {"before the others",
       List(label(3, 0), XtMatch("comment", 0, XtCommentInfo("c")),
            XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), drop),
       "-m comment --comment c -m mark --mark 0x1/0x1 -m connlabel --label \"3\" -j DROP"},
      {"no label of the kernel's", List(label(128, 0), drop)},
      {"an option that we do not know", List(label(1, 4), drop)},
      {"another revision", List(XtMatch("connlabel", 1, XtConnLabelInfo(1, 0)), drop)},
      {"half of it", List(XtMatch("connlabel", 0, HostU16(1)), drop)},
      {"two labels", List(label(1, 0), label(1, 0), drop)},
      {"set, and one that we do not know", List(label(1, 2), XtMatch("statistic", 0, Zeros(24)))},
      {"tested, and only counted", List(label(1, 0), count)},
      {"not, and only counted", List(label(1, 1), count)},
      {"set, and no more than \"continue\"", List(label(1, 2), Verdict(-1))},
      {"after the target", List(drop, label(1, 2))},
      {"a target of that name", List(XtTarget("connlabel", 0, XtConnLabelInfo(1, 2)))},
      {"native, tested", List(Ct(13), Mask(HostU32(2)), Compare(HostU32(0), kNotEqual), drop)},
      {"native, set", List(Immediate(Join({HostU32(2), Zeros(12)})), SetCt(13))},
  });
}

// Each listing has another sequence number and generation.
TEST(ListedRulesTest, DecodesEachListingAsIfItWereTheFirst) {
  const auto rule = [](const Bytes& first, const Bytes& last) {
    return RuleMessage(Family::kIPv4, {first, last});
  };
  const auto counter = [](uint32_t packets) {
    return ExpressionBytes("counter", Attr(2, Join({U32(0), U32(packets)})));
  };
  const Bytes drop = rule(counter(1), Verdict(0));
  const Bytes counted = rule(counter(2), Verdict(0));
  const Bytes accept = rule(Meta(kMetaMark), Verdict(1));
  const ChainId input = {Family::kIPv4, Table::kFilter, "INPUT"};
  const ChainId output = {Family::kIPv4, Table::kFilter, "OUTPUT"};
  const std::pair<ChainId, std::vector<Bytes>> listings[] = {
      {input, {drop, accept}},
      {input, {drop, accept}},
      {input, {drop, accept}},
      {input, {counted, accept}},
      {input, {accept}},
      {input, std::vector<Bytes>(70, drop)},
      {input, std::vector<Bytes>(70, counted)},
      {output, {counted}},
      {input, {}},
      {input, {drop}},
  };
  ListedRules listed;
  uint8_t number = 0;
  for (const auto& [chain, messages] : listings) {
    SCOPED_TRACE(absl::StrCat("listing ", ++number));
    for (size_t place = 0; place < messages.size(); ++place) {
      Bytes message = messages[place];
      message[8] = message[19] = number;
      const absl::StatusOr<ObservedRule> found = listed.Decode(chain, place, message);
      const absl::StatusOr<ObservedRule> expected = DecodeRule(message);
      ASSERT_TRUE(found.ok() && expected.ok());
      EXPECT_EQ(*found, *expected);
      EXPECT_EQ(found->counters, expected->counters);
      EXPECT_EQ(found->unlistable, expected->unlistable);
    }
    listed.EndChain(chain);
  }
}

}  // namespace
}  // namespace kipt::netlink::rule_decode_test
