// SPDX-License-Identifier: Apache-2.0
//
// Wire to Rule: every form that is accepted, and what looks like one of them and is not.
#include <string>
#include <vector>

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
  Family family;
  std::vector<Bytes> expressions;
  std::string text;  // of the Rule; empty where the rule must be opaque
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

TEST(DecodeRuleTest, ReadsEveryFormOfAnAddress) {
  const Bytes drop = Verdict(0);
  const Bytes ones = Bytes(16, 0xff);
  ExpectDecoded({
      {"four bytes under a mask",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000")), drop},
       "-s 127.0.0.0/8 -j DROP"},
      {"a mask with its operation",
       Family::kIPv4,
       {Payload(kNetwork, 16, 4), MaskWithOp(FromHex("fff80000")), Compare(FromHex("0a080000")),
        drop},
       "-d 10.8.0.0/13 -j DROP"},
      {"one byte",
       Family::kIPv4,
       {Payload(kNetwork, 12, 1), Compare(FromHex("7f"), kNotEqual), drop},
       "! -s 127.0.0.0/8 -j DROP"},
      {"two bytes",
       Family::kIPv4,
       {Payload(kNetwork, 16, 2), Compare(FromHex("c0a8")), drop},
       "-d 192.168.0.0/16 -j DROP"},
      {"three bytes",
       Family::kIPv4,
       {Payload(kNetwork, 16, 3), Compare(FromHex("c0a801")), drop},
       "-d 192.168.1.0/24 -j DROP"},
      {"three bytes under a mask",
       Family::kIPv4,
       {Payload(kNetwork, 16, 3), Mask(FromHex("fffff0")), Compare(FromHex("c0a8f0")), drop},
       "-d 192.168.240.0/20 -j DROP"},
      {"four bytes",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Compare(FromHex("0a010203")), drop},
       "-s 10.1.2.3/32 -j DROP"},
      {"both, destination first, in other registers",
       Family::kIPv4,
       {Payload(kNetwork, 16, 4, 9), Mask(FromHex("ff000000"), 9, 2),
        Compare(FromHex("7f000000"), 0, 2), Payload(kNetwork, 12, 1, 4),
        Compare(FromHex("7f"), kNotEqual, 4), drop},
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP"},
      {"both loaded, then both compared",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4, 8), Payload(kNetwork, 16, 4, 9),
        Compare(FromHex("01010101"), 0, 8), Compare(FromHex("02020202"), 0, 9), drop},
       "-s 1.1.1.1/32 -d 2.2.2.2/32 -j DROP"},
      {"IPv6",
       Family::kIPv6,
       {Payload(kNetwork, 8, 16), Mask(Join({FromHex("fffe"), Zeros(14)})),
        Compare(Join({FromHex("fd00"), Zeros(14)})), drop},
       "-s fd00::/15 -j DROP"},
      {"two bytes of IPv6",
       Family::kIPv6,
       {Payload(kNetwork, 24, 2), Compare(FromHex("fe80"), kNotEqual), drop},
       "! -d fe80::/16 -j DROP"},
      {"a whole IPv6 address",
       Family::kIPv6,
       {Payload(kNetwork, 24, 16), Compare(ones), drop},
       "-d ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128 -j DROP"},
  });
}

TEST(DecodeRuleTest, LeavesEverythingElseAboutAPacketOpaque) {
  const Bytes drop = Verdict(0);
  const Bytes address = Compare(FromHex("7f000000"));
  ExpectDecoded({
      {"link header", Family::kIPv4, {Payload(0, 12, 4), address, drop}, ""},
      {"transport header", Family::kIPv4, {Payload(2, 12, 4), address, drop}, ""},
      {"beside the address", Family::kIPv4, {Payload(kNetwork, 13, 4), address, drop}, ""},
      {"source of the other family", Family::kIPv6, {Payload(kNetwork, 12, 4), address, drop}, ""},
      {"both addresses at once",
       Family::kIPv4,
       {Payload(kNetwork, 12, 8), Compare(Zeros(8)), drop},
       ""},
      {"nothing", Family::kIPv4, {Payload(kNetwork, 12, 0), Compare({}), drop}, ""},
      {"less compared than loaded",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Compare(FromHex("7f00")), drop},
       ""},
      {"more compared than loaded",
       Family::kIPv4,
       {Payload(kNetwork, 12, 2), Compare(FromHex("7f000000")), drop},
       ""},
      {"a mask with a hole",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ff00ff00")), address, drop},
       ""},
      {"a mask with a hole in a byte",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("fd000000")), address, drop},
       ""},
      {"a mask that begins late",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("00ffffff")), Compare(Zeros(4)), drop},
       ""},
      {"a value outside the mask",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000001")), drop},
       ""},
      {"masked twice",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ffff0000")), Mask(FromHex("ff000000")), address,
        drop},
       ""},
      {"a shorter mask",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ff00")), Compare(FromHex("7f00")), drop},
       ""},
      {"shifted",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), MaskWithOp(FromHex("ff000000"), 1), address, drop},
       ""},
      {"flipped bits",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4),
        ExpressionBytes("bitwise", Join({Attr(1, 1), Attr(2, 1), Attr(3, 4),
                                         Attr(4, Attr(1, FromHex("ff000000"))),
                                         Attr(5, Attr(1, FromHex("01000000")))})),
        address, drop},
       ""},
      {"less than",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Compare(FromHex("7f000000"), 2), drop},
       ""},
      {"greater",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Compare(FromHex("7f000000"), 4), drop},
       ""},
      {"another register",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4, 1), Compare(FromHex("7f000000"), 0, 2), drop},
       ""},
      {"a register that does not exist",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4, 77), Compare(FromHex("7f000000"), 0, 77), drop},
       ""},
      {"overwritten before it is compared",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4, 1), Payload(kNetwork, 12, 4, 9), Payload(kNetwork, 16, 4, 1),
        address, drop},
       ""},
      {"twice the source",
       Family::kIPv4,
       {Payload(kNetwork, 12, 1), Compare({10}), Payload(kNetwork, 12, 1), Compare({11}, kNotEqual),
        drop},
       ""},
      {"compared twice",
       Family::kIPv4,
       {Payload(kNetwork, 12, 1), Compare({10}), Compare({10}), drop},
       ""},
      {"loaded only", Family::kIPv4, {Payload(kNetwork, 12, 4), drop}, ""},
      {"masked only",
       Family::kIPv4,
       {Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), drop},
       ""},
      {"written",
       Family::kIPv4,
       {ExpressionBytes("payload",
                        Join({Attr(5, 1), Attr(2, 1), Attr(3, 12), Attr(4, 4), Attr(1, 1)})),
        address, drop},
       ""},
      {"a protocol", Family::kIPv4, {Payload(kNetwork, 9, 1), Compare({6}), drop}, ""},
      {"an interface", Family::kIPv4, {Meta(6), Compare(Text("lo")), drop}, ""},
      {"a port without its protocol",
       Family::kIPv4,
       {Payload(2, 2, 2), Compare(FromHex("0050")), drop},
       ""},
      {"TCP's flags without their protocol",
       Family::kIPv4,
       {Payload(2, 13, 1), Mask({2}), Compare({2}), drop},
       ""},
  });
}

TEST(DecodeRuleTest, ReadsWhatARuleCounted) {
  const Bytes counter = ExpressionBytes("counter", Join({Attr(1, FromHex("0000000000000140")),
                                                         Attr(2, FromHex("0000000000000004"))}));
  const absl::StatusOr<ObservedRule> rule =
      DecodeRule(RuleMessage(Family::kIPv4, {counter, Verdict(0)}));
  ASSERT_THAT(rule, IsOk());
  EXPECT_EQ(rule->counters, (RuleCounters{.packets = 4, .bytes = 320}));
}

TEST(DecodeSurveyRuleTest, RefusesWhatIsNoRule) {
  EXPECT_THAT(DecodeRule(FromHex("0102"), DecodeFor::kSurvey), Not(IsOk()));
}

TEST(DecodeRuleTest, ReadsBothFormsOfAMark) {
  const Bytes drop = Verdict(0);
  const Bytes bit = HostU32(0x8000);
  ExpectDecoded({
      {"xtables",
       Family::kIPv4,
       {XtMatch("mark", 1, XtMarkInfo(0x8000, 0x8000, 0)), drop},
       "-m mark --mark 0x8000/0x8000 -j DROP"},
      {"xtables, negated",
       Family::kIPv4,
       {XtMatch("mark", 1, XtMarkInfo(0x4000, 0x4000, 1)), drop},
       "-m mark ! --mark 0x4000/0x4000 -j DROP"},
      {"native",
       Family::kIPv4,
       {Meta(kMetaMark), Mask(bit), Compare(bit), drop},
       "-m mark --mark 0x8000/0x8000 -j DROP"},
      {"native, negated, in small registers",
       Family::kIPv6,
       {Meta(kMetaMark, 10), Mask(bit, 10, 11), Compare(bit, kNotEqual, 11), drop},
       "-m mark ! --mark 0x8000/0x8000 -j DROP"},
      {"native, whole",
       Family::kIPv4,
       {Meta(kMetaMark), Compare(HostU32(1)), drop},
       "-m mark --mark 0x1 -j DROP"},
      {"native, a mask of any shape",
       Family::kIPv4,
       {Meta(kMetaMark), Mask(HostU32(0x5)), Compare(HostU32(0x1)), drop},
       "-m mark --mark 0x1/0x5 -j DROP"},
      {"both",
       Family::kIPv4,
       {Meta(kMetaMark), Compare(bit), XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), drop},
       ""},
      {"of another revision",
       Family::kIPv4,
       {XtMatch("mark", 2, XtMarkInfo(0x8000, 0x8000, 0)), drop},
       ""},
      {"of half the size", Family::kIPv4, {Meta(kMetaMark), Compare(FromHex("8000")), drop}, ""},
      {"other metadata", Family::kIPv4, {Meta(4), Mask(bit), Compare(bit), drop}, ""},
      {"set", Family::kIPv4, {ExpressionBytes("meta", Join({Attr(2, kMetaMark), Attr(3, 1)}))}, ""},
  });
}

// Rows: the rule of iptables, or nothing where one expression differs from nft's.
TEST(DecodeRuleTest, ReadsWhatNftLoadsOfItsOwnListingOfIptablesRules) {
  const Bytes drop = Verdict(0);
  const Bytes status = ExpressionBytes("ct", Join({Attr(2, 2), Attr(1, 1)}));
  const Bytes dnat = Mask(HostU32(0x20));
  const Bytes any = Compare(Zeros(4), kNotEqual);
  const Bytes set_mark = ExpressionBytes("meta", Join({Attr(2, kMetaMark), Attr(3, 1)}));
  const Bytes or_bit = ExpressionBytes(
      "bitwise", Join({Attr(1, 1), Attr(2, 1), Attr(3, 4), Attr(4, Attr(1, HostU32(~0x4000U))),
                       Attr(5, Attr(1, HostU32(0x4000)))}));
  const Bytes masquerade = ExpressionBytes("masq", {});
  const Bytes random = ExpressionBytes("masq", Attr(1, 0x10));
  const Bytes label = FromHex("08000000000000000000000000000000");
  const Bytes has_label = Join({ExpressionBytes("ct", Join({Attr(2, 13), Attr(1, 1)})), Mask(label),
                                Compare(Zeros(16), kNotEqual)});
  const Bytes set_label =
      Join({ExpressionBytes("immediate", Join({Attr(1, 1), Attr(2, Attr(1, label))})),
            ExpressionBytes("ct", Join({Attr(2, 13), Attr(4, 1)}))});
  const Bytes local = Join({Payload(kNetwork, 16, 1), Compare({127})});
  const Bytes count = CounterBytes();
  const Bytes mark = Join({Meta(kMetaMark), Mask(HostU32(0x4000)), Compare(HostU32(0x4000))});
  const std::vector<Row> rows = {
      {"ct status", Family(), List(local, status, dnat, any, count, drop),
       "-d 127.0.0.0/8 -m conntrack --ctstate DNAT -j DROP"},
      {"mark", Family(), List(count, Meta(kMetaMark), or_bit, set_mark),
       "-j MARK --set-xmark 0x4000/0x4000"},
      {"masquerade", Family(), List(count, masquerade), "-j MASQUERADE"},
      {"randomly", Family(), List(mark, count, random),
       "-m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully"},
      {"with a comment", Family(), List(count, random),
       "-m comment --comment c -j MASQUERADE --random-fully", UserDataComment("c")},
      {"label", Family(), List(has_label, count, random),
       "-m connlabel --label \"3\" -j MASQUERADE --random-fully"},
      {"set a label", Family(), List(set_label, has_label, count),
       "-m connlabel --label \"3\" --set"},
      {"no counter", Family(), List(local, status, dnat, any, drop), ""},
      {"two counters", Family(), List(count, count, random), ""},
      {"a counter in another place", Family(), List(random, count), ""},
      {"snat", Family(), List(local, status, Mask(HostU32(0x10)), any, count, drop), ""},
      {"either", Family(), List(local, status, Mask(HostU32(0x30)), any, count, drop), ""},
      {"negated", Family(), List(local, status, dnat, Compare(Zeros(4)), count, drop), ""},
      {"another order", Family(), List(status, dnat, any, local, count, drop), ""},
      {"accepts", Family(), List(local, status, dnat, any, count, Verdict(1)), ""},
      {"one match more", Family(),
       List(local, Meta(6), Compare(Text("eth0")), status, dnat, any, count, drop), ""},
      {"an unknown expression",
       Family(),
       {local, status, dnat, any, ExpressionBytes("log", {}), count, drop},
       ""},
      {"other metadata", Family(), List(count, Meta(4), or_bit, set_mark), ""},
      {"a constant mark", Family(),
       List(count, ExpressionBytes("immediate", Join({Attr(1, 1), Attr(2, Attr(1, HostU32(1)))})),
            set_mark),
       ""},
      {"to ports", Family(), List(count, ExpressionBytes("masq", Attr(2, 1))), ""},
      {"persistent", Family(), List(count, ExpressionBytes("masq", Attr(1, 0x18))), ""},
      {"two labels", Family(),
       List(ExpressionBytes("ct", Join({Attr(2, 13), Attr(1, 1)})),
            Mask(FromHex("0c000000000000000000000000000000")), Compare(Zeros(16), kNotEqual), count,
            random),
       ""},
      {"sets another label", Family(),
       List(set_label, ExpressionBytes("ct", Join({Attr(2, 13), Attr(1, 1)})),
            Mask(FromHex("04000000000000000000000000000000")), Compare(Zeros(16), kNotEqual),
            count),
       ""},
      {"-p for an xtables match", Family(), List(count, random), "",
       Attr(5, Join({Attr(1, 6), Attr(2, 0)}))},
  };
  for (const Row& row : rows) {
    const auto rule = DecodeRule(RuleMessage(Family::kIPv4, row.expressions, row.more));
    ASSERT_THAT(rule, IsOk()) << row.name;
    ASSERT_NE(rule->opaque(), nullptr) << row.name << ": never one of ours";
    const OpaqueRule& opaque = *rule->opaque();
    EXPECT_TRUE(rule->unlistable) << row.name;
    EXPECT_EQ(opaque.translated ? ToString(Family::kIPv4, opaque.known) : "", row.text) << row.name;
  }
}

TEST(DecodeRuleTest, ReadsCommentsWhereverTheyAre) {
  const Bytes drop = Verdict(0);
  const Bytes comment = XtMatch("comment", 0, XtCommentInfo("two words"));
  const std::string text = "-m comment --comment \"two words\" -j DROP";
  ExpectDecoded({
      {"match", Family::kIPv4, {comment, drop}, text},
      {"user data", Family::kIPv4, {drop}, text, UserDataComment("two words")},
      {"user data without NUL",
       Family::kIPv4,
       {drop},
       "-m comment --comment ab -j DROP",
       Attr(7, Bytes{0, 2, 'a', 'b'})},
      {"behind other user data",
       Family::kIPv4,
       {drop},
       "-m comment --comment a -j DROP",
       Attr(7, Bytes{2, 1, 'x', 0, 2, 'a', 0})},
      {"user data that is none", Family::kIPv4, {drop}, "-j DROP", Attr(7, Bytes{9, 2, 'a', 'b'})},
      {"user data that is cut off", Family::kIPv4, {drop}, "-j DROP", Attr(7, Bytes{0, 9, 'a'})},
      {"an empty comment", Family::kIPv4, {drop}, "-j DROP", UserDataComment("")},
      {"a control character",
       Family::kIPv4,
       {drop},
       "-m comment --comment \"\x01\" -j DROP",
       UserDataComment("\x01")},
      {"two matches", Family::kIPv4, {comment, comment, drop}, ""},
      {"match and user data", Family::kIPv4, {comment, drop}, "", UserDataComment("two words")},
      {"an empty match", Family::kIPv4, {XtMatch("comment", 0, Zeros(256)), drop}, ""},
      {"an endless match", Family::kIPv4, {XtMatch("comment", 0, Bytes(256, 'x')), drop}, ""},
      {"another revision",
       Family::kIPv4,
       {XtMatch("comment", 1, XtCommentInfo("two words")), drop},
       ""},
  });
}

TEST(DecodeRuleTest, ReadsEveryTargetOfTheVocabulary) {
  const Bytes count = CounterBytes();
  ExpectDecoded({
      {"drop", Family::kIPv4, {count, Verdict(0)}, "-j DROP"},
      {"return", Family::kIPv4, {count, Verdict(-5)}, "-j RETURN"},
      {"jump", Family::kIPv4, {Verdict(-3, "X"), count}, "-j X"},
      {"mark",
       Family::kIPv4,
       {count, XtTarget("MARK", 2, XtSetMarkInfo(0x4000, 0))},
       "-j MARK --set-xmark 0x4000/0x0"},
      {"masquerade",
       Family::kIPv4,
       {XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x10))},
       "-j MASQUERADE --random-fully"},
      {"masquerade of IPv6",
       Family::kIPv6,
       {XtTarget("MASQUERADE", 0, XtMasqueradeInfo6(0))},
       "-j MASQUERADE"},
      {"matches in another order",
       Family::kIPv4,
       {XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)), XtMatch("mark", 1, XtMarkInfo(1, 1, 0)),
        count, XtMatch("comment", 0, XtCommentInfo("c")), Verdict(0)},
       "-m comment --comment c -m mark --mark 0x1/0x1 -m conntrack --ctstate ESTABLISHED -j DROP"},
  });
}

TEST(DecodeRuleTest, LeavesEverythingElseOpaque) {
  const Bytes drop = Verdict(0);
  const Bytes mark = XtMatch("mark", 1, XtMarkInfo(1, 1, 0));
  ExpectDecoded({
      {"accept", Family::kIPv4, {Verdict(1)}, ""},
      {"goto", Family::kIPv4, {Verdict(-4, "X")}, ""},
      {"continue", Family::kIPv4, {Verdict(-1)}, ""},
      {"jump to nowhere", Family::kIPv4, {Verdict(-3)}, ""},
      {"no target", Family::kIPv4, {CounterBytes()}, ""},
      {"nothing at all", Family::kIPv4, {}, ""},
      {"two targets", Family::kIPv4, {drop, Verdict(-5)}, ""},
      {"a target and a verdict",
       Family::kIPv4,
       {XtTarget("MARK", 2, XtSetMarkInfo(1, 1)), drop},
       ""},
      {"a match behind the target", Family::kIPv4, {drop, mark}, ""},
      {"two states",
       Family::kIPv4,
       {XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)),
        XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)), drop},
       ""},
      {"-m state", Family::kIPv4, {XtMatch("conntrack", 3, XtCtStateInfo(0x2001, 0, 2)), drop}, ""},
      {"more of conntrack",
       Family::kIPv4,
       {XtMatch("conntrack", 3, XtCtStateInfo(3, 0, 2)), drop},
       ""},
      {"native state",
       Family::kIPv4,
       {ExpressionBytes("ct", Join({Attr(2, 0), Attr(1, 1)})), Compare(HostU32(2)), drop},
       ""},
      {"masquerade to ports",
       Family::kIPv4,
       {XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x2))},
       ""},
      {"masquerade of the other family",
       Family::kIPv6,
       {XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x10))},
       ""},
      {"native masquerade", Family::kIPv4, {ExpressionBytes("masq", {})}, ""},
      {"MARK of another revision", Family::kIPv4, {XtTarget("MARK", 1, XtSetMarkInfo(1, 1))}, ""},
      {"unknown match", Family::kIPv4, {XtMatch("statistic", 0, Zeros(24)), drop}, ""},
      {"unknown target", Family::kIPv4, {XtTarget("DNAT", 2, Zeros(48))}, ""},
      {"a target that is named as a match",
       Family::kIPv4,
       {XtMatch("MARK", 2, XtSetMarkInfo(1, 1)), drop},
       ""},
      {"unknown expression", Family::kIPv4, {ExpressionBytes("brandnew", Zeros(0)), drop}, ""},
      {"limit", Family::kIPv4, {ExpressionBytes("limit", Attr(1, Zeros(8))), drop}, ""},
      {"-p for an xtables match",
       Family::kIPv4,
       {drop},
       "",
       Attr(5, Join({Attr(1, 6), Attr(2, 0)}))},
      {"an attribute that we do not know in cmp",
       Family::kIPv4,
       {Meta(kMetaMark),
        ExpressionBytes("cmp",
                        Join({Attr(1, 1), Attr(2, 0), Attr(3, Attr(1, HostU32(1))), Attr(9, 1)})),
        drop},
       ""},
      {"an attribute that we do not know in match",
       Family::kIPv4,
       {ExpressionBytes("match", Join({Attr(1, Text("mark")), Attr(2, 1),
                                       Attr(3, XtMarkInfo(1, 1, 0)), Attr(4, 1)})),
        drop},
       ""},
  });
}

}  // namespace
}  // namespace kipt::netlink::rule_decode_test
