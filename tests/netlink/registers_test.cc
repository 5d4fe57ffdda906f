// SPDX-License-Identifier: Apache-2.0
//
// What the registers of a rule hold: which bytes a comparison compares, and what nothing compares.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/rows.h"

namespace kipt::netlink::registers_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

// The rule's text, and "always" where it has no condition, "decides" where it may do anything.
std::string Shown(const std::vector<Bytes>& expressions) {
  const absl::StatusOr<ObservedRule> rule = DecodeRule(RuleMessage(Family::kIPv4, expressions));
  if (!rule.ok()) return rule.status().ToString();
  if (rule->opaque() == nullptr) return ToString(Family::kIPv4, *rule);
  return absl::StrCat(rule->opaque()->text, rule->opaque()->unconditional ? ", always" : "",
                      rule->opaque()->decides ? ", decides" : "");
}

constexpr uint32_t kPriority = 2;  // enum nft_meta_keys
constexpr uint32_t kMark = 3;
constexpr uint32_t kInName = 6;
constexpr uint32_t kTrace = 12;

Bytes Source(uint32_t to = 1) { return Payload(1, 12, 4, to); }
Bytes IsOne(uint32_t from = 1) { return Compare({1, 0, 0, 0}, 0, from); }

// The same 64 bytes: four registers of 16 bytes, or sixteen of 4.
TEST(RegistersTest, HaveTwoNames) {
  struct Row {
    uint32_t loaded;
    uint32_t compared;
    bool same = true;
  };
  constexpr Row kRows[] = {
      {1, 8},        {2, 12},       {3, 16},       {4, 20},         {9, 9},         {23, 23},
      {8, 1},        {20, 4},       {1, 9, false}, {2, 11, false},  {4, 23, false}, {0, 0, false},
      {5, 5, false}, {6, 6, false}, {7, 7, false}, {24, 24, false}, {5, 24, false}, {1, 2, false},
  };
  for (const Row& row : kRows) {
    const std::string shown = Shown({Source(row.loaded), IsOne(row.compared), Verdict(1)});
    EXPECT_EQ(shown == "-s 1.0.0.0/32 -j ACCEPT, decides", row.same)
        << row.loaded << " " << row.compared << ": " << shown;
    EXPECT_EQ(shown.find("always"), std::string::npos) << shown;
  }
}

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  std::string shown;
};

void ExpectShown(const std::vector<Row>& rows) {
  for (const Row& row : rows) EXPECT_EQ(Shown(row.expressions), row.shown) << row.name;
}

TEST(RegistersTest, ALoadThatNothingComparesStillEndsTheRuleForShortPackets) {
  ExpectShown({
      {"a load", List(Source(), Verdict(0)), "[nft payload] -j DROP, decides"},
      {"a load and nothing else", List(Source()), "[nft payload]"},
      {"a mask of nothing", List(Mask({1}, 3, 3)), "[nft bitwise], always"},
      {"bytes of the rule's own", List(Immediate({1, 2, 3, 4}), Verdict(0)),
       "[nft immediate] -j DROP, always, decides"},
      {"overwritten", List(Source(), Payload(1, 16, 4), IsOne(), Verdict(0)),
       "-d 1.0.0.0/32 [nft payload] -j DROP, decides"},
      {"partly overwritten", List(Payload(1, 8, 8, 8), Source(9), IsOne(9), Verdict(0)),
       "-s 1.0.0.0/32 [nft payload] -j DROP, decides"},
      {"next to each other", List(Source(8), Payload(1, 16, 4, 9), IsOne(8), IsOne(9), Verdict(0)),
       "-s 1.0.0.0/32 -d 1.0.0.0/32 -j DROP"},
      {"next to each other, backwards",
       List(Source(9), Payload(1, 16, 4, 8), IsOne(8), IsOne(9), Verdict(0)),
       "-s 1.0.0.0/32 -d 1.0.0.0/32 -j DROP"},
      {"next to the mark",
       List(Meta(kMark, 8), Source(9), Compare(HostU32(1), 0, 8), IsOne(9), Verdict(1)),
       "-s 1.0.0.0/32 -m mark --mark 0x1 -j ACCEPT, decides"},
      {"next to a name",
       List(Meta(kInName, 8), Source(12), Compare(Text("lo"), 0, 8), IsOne(12), Verdict(0)),
       "-s 1.0.0.0/32 -i lo -j DROP, decides"},
      {"in a register that does not exist", List(Source(24), Verdict(0)),
       "[nft payload] -j DROP, decides"},
      {"after the verdict", List(Verdict(-3, "X"), Payload(1, 1, 1)),
       "[nft payload] -j X, decides"},
      {"nothing is masked", List(Verdict(-3, "X"), Mask({1}, 3, 3)),
       "[nft bitwise] -j X, always, decides"},
  });
}

TEST(RegistersTest, WhatIsComparedIsWhatWasLoaded) {
  ExpectShown({
      {"two bytes of a mark", List(Meta(kMark), Compare({1, 0}), Verdict(0)),
       "[nft cmp] [nft meta] -j DROP, decides"},
      {"bytes of the rule's own", List(Immediate({1, 0, 0, 0}), IsOne(), Verdict(0)),
       "[nft immediate] -j DROP, decides"},
      {"a range of marks", List(Meta(kMark), Range(HostU32(1), HostU32(2)), Verdict(0)),
       "[nft meta] -j DROP, decides"},
      {"a range of masked ports",
       List(Payload(2, 2, 2), Mask({0xff, 0}), Range({0, 1}, {0, 2}), Verdict(0)),
       "[nft payload] -j DROP, decides"},
      {"an order that is none", List(Source(), Compare({1, 0, 0, 0}, 6), Verdict(0)),
       "[nft payload] [nft cmp] -j DROP, decides"},
  });
}

TEST(RegistersTest, WhatIsWrittenToAPacketIsReadOnlyWhereItIsKnown) {
  const Bytes one = HostU32(1);
  ExpectShown({
      {"a mark", List(Immediate(one), SetMeta(kMark)),
       "-j MARK --set-xmark 0x1/0xffffffff, always, decides"},
      {"bits of the mark", List(Meta(kMark), Flip(HostU32(0xffff0000), one), SetMeta(kMark)),
       "-j MARK --set-xmark 0x1/0xffff, always, decides"},
      {"the mark itself", List(Meta(kMark), SetMeta(kMark)), "[nft meta] [nft meta], decides"},
      {"a value of another length", List(Immediate({1, 0}), SetMeta(kMark)),
       "[nft immediate] [nft meta], always, decides"},
      {"a masked value", List(Immediate(one), Mask(one), SetMeta(kMark)),
       "[nft immediate] [nft meta], always, decides"},
      {"masked bytes of the packet", List(Source(), Mask({255, 255, 0, 0}), SetMeta(kMark)),
       "[nft payload] [nft meta], decides"},
      {"another key", List(Immediate(one), SetMeta(kPriority)),
       "[nft immediate] [nft meta], always, decides"},
      {"tracing", List(Immediate({1}), SetMeta(kTrace)), "-j TRACE, always"},
      {"tracing off", List(Immediate({0}), SetMeta(kTrace)),
       "[nft immediate] [nft meta], always, decides"},
      {"tracing by four bytes", List(Immediate(one), SetMeta(kTrace)),
       "[nft immediate] [nft meta], always, decides"},
      {"tracing by a byte of the packet", List(Payload(1, 9, 1), SetMeta(kTrace)),
       "[nft payload] [nft meta], decides"},
      {"tracing by a masked byte", List(Immediate({1}), Mask({1}), SetMeta(kTrace)),
       "[nft immediate] [nft meta], always, decides"},
  });
}

struct Whole {
  std::string name;
  std::vector<Bytes> attributes;
  Bytes load;  // what it could read
};

const Whole kWhole[] = {
    {"payload", List(Attr(1, 1), Attr(2, 1), Attr(3, 12), Attr(4, 4)), Meta(kMark)},
    {"meta", List(Attr(2, kMark), Attr(1, 1)), Source()},
    {"meta", List(Attr(2, kMark), Attr(3, 1)), Immediate(HostU32(1))},
    {"bitwise",
     List(Attr(1, 1), Attr(2, 1), Attr(3, 4), Attr(4, Attr(1, HostU32(1))),
          Attr(5, Attr(1, Zeros(4)))),
     Meta(kMark)},
    {"cmp", List(Attr(1, 1), Attr(2, 0), Attr(3, Attr(1, HostU32(1)))), Meta(kMark)},
    {"range", List(Attr(1, 1), Attr(2, 0), Attr(3, Attr(1, {0, 1})), Attr(4, Attr(1, {0, 2}))),
     Payload(2, 2, 2)},
    {"immediate", List(Attr(1, 1), Attr(2, Attr(1, {0, 1}))), Source()},
    {"match", List(Attr(1, Text("x")), Attr(2, 2), Attr(3, Zeros(8))), Source()},
    {"target", List(Attr(1, Text("X")), Attr(2, 2), Attr(3, Zeros(8))), Source()},
};

TEST(RegistersTest, AnExpressionWithSomethingMissingOrTooMuchIsNamed) {
  for (const Whole& whole : kWhole) {
    const auto expect_named = [&](const std::string& what, const std::vector<Bytes>& attributes) {
      const std::string shown =
          Shown({whole.load, ExpressionBytes(whole.name, Join(attributes)), Verdict(0)});
      EXPECT_NE(shown.find(absl::StrCat("[nft ", whole.name, "]")), std::string::npos)
          << whole.name << ", " << what << ": " << shown;
    };
    for (size_t missing = 0; missing < whole.attributes.size(); ++missing) {
      std::vector<Bytes> attributes = whole.attributes;
      attributes.erase(attributes.begin() + static_cast<ptrdiff_t>(missing));
      expect_named(absl::StrCat("without attribute ", missing), attributes);
    }
    std::vector<Bytes> attributes = whole.attributes;
    attributes.push_back(Attr(40, 1));
    expect_named("with another attribute", attributes);
  }
}

TEST(RegistersTest, AnExpressionWithWrongLengthsIsNamed) {
  const auto bitwise = [](uint32_t length, const Bytes& mask, const Bytes& flip) {
    return ExpressionBytes("bitwise", Join({Attr(1, 1), Attr(2, 1), Attr(3, length),
                                            Attr(4, Attr(1, mask)), Attr(5, Attr(1, flip))}));
  };
  ExpectShown({
      {"a mask that is shorter",
       List(Source(), bitwise(4, {255, 0}, Zeros(4)), IsOne(), Verdict(0)),
       "[nft payload] [nft bitwise] [nft cmp] -j DROP, decides"},
      {"a flip that is shorter",
       List(Source(), bitwise(4, {255, 0, 0, 0}, Zeros(2)), IsOne(), Verdict(0)),
       "[nft payload] [nft bitwise] [nft cmp] -j DROP, decides"},
      {"a range without a low end", List(Payload(2, 2, 2), Range({}, {0, 2}), Verdict(0)),
       "[nft payload] [nft range] -j DROP, decides"},
      {"a range without a high end", List(Payload(2, 2, 2), Range({0, 1}, {}), Verdict(0)),
       "[nft payload] [nft range] -j DROP, decides"},
      {"no bytes of the rule's own", List(Immediate({}), Verdict(0)),
       "[nft immediate] -j DROP, always, decides"},
      {"bytes in the verdict's place", List(Immediate({1}, 0), Verdict(0)),
       "[nft immediate] -j DROP, always, decides"},
  });
}

}  // namespace
}  // namespace kipt::netlink::registers_test
