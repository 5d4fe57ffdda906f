// SPDX-License-Identifier: Apache-2.0
//
// What each expression of the kernel (net/netfilter/nft_*.c) does that no Rule has a place for.
#include <gtest/gtest.h>
#include <linux/netfilter/nf_tables.h>

#include <string>
#include <vector>

#include "netlink/statement.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

std::string Does(const std::string& name, const Bytes& data) {
  const OtherExpression other =
      DescribeOther({.name = name, .data = Attributes::Parse(data), .bytes = {}});
  std::string does = other.decides ? "decides" : other.condition ? "chooses" : "goes on";
  if (other.terminal) does += " and ends";
  if (other.marks.tested != 0) does += ", reads the mark";
  if (other.marks.set != 0) does += ", sets the mark";
  if (other.marks.labels_set.any()) does += ", sets labels";
  return does;
}

TEST(ExpressionTest, OfEachOfTheKernelsItIsKnownWhatItDoes) {
  for (const char* name : {"bitwise", "byteorder", "immediate", "last", "log"}) {
    EXPECT_EQ(Does(name, name == std::string("immediate") ? Attr(NFTA_IMMEDIATE_DREG, 1) : Bytes()),
              "goes on")
        << name;
  }
  for (const char* name :
       {"cmp", "connlimit", "ct", "dynset", "exthdr", "fib", "hash", "limit", "lookup", "numgen",
        "osf", "payload", "quota", "range", "rt", "socket", "tunnel", "xfrm"}) {
    EXPECT_EQ(Does(name, {}), "chooses") << name;
  }
  for (const char* name : {"masq", "redir", "reject"}) {
    EXPECT_EQ(Does(name, {}), "decides and ends") << name;
  }
  for (const char* name :
       {"dup", "flow_offload", "fwd", "nat", "notrack", "objref", "synproxy", "tproxy"}) {
    EXPECT_EQ(Does(name, {}), "decides") << name;
  }
  EXPECT_EQ(Does("meta", {}), "chooses, reads the mark");
  for (const char* name : {"queue", "brandnew", "another text"}) {
    EXPECT_EQ(Does(name, {}), "decides, reads the mark, sets the mark, sets labels") << name;
  }
}

TEST(ExpressionTest, AnImmediateWithoutARegisterIsAVerdictAndALogWithAGroupATarget) {
  EXPECT_EQ(Does("immediate", {}), "decides, reads the mark, sets the mark, sets labels");
  const Bytes group = Attr(NFTA_LOG_GROUP, Bytes{0, 3});
  const OtherExpression log =
      DescribeOther({.name = "log", .data = Attributes::Parse(group), .bytes = {}});
  EXPECT_EQ(log.text, "-j NFLOG --nflog-group 3");
  EXPECT_TRUE(log.is_target);
  EXPECT_EQ(Does("fib", Attr(NFTA_FIB_FLAGS, NFTA_FIB_F_MARK)), "chooses, reads the mark");
  EXPECT_EQ(Does("fib", Attr(NFTA_FIB_FLAGS, NFTA_FIB_F_SADDR)), "chooses");
}

TEST(ExpressionTest, ATestThatStoresWritesToThePacket) {
  const std::string mark = ", reads the mark, sets the mark";
  EXPECT_EQ(Does("ct", Attr(NFTA_CT_SREG, 1)), "decides, sets labels");
  EXPECT_EQ(Does("exthdr", Attr(NFTA_EXTHDR_SREG, 1)), "decides");
  EXPECT_EQ(Does("meta", Attr(NFTA_META_SREG, 1)), "decides" + mark);
  EXPECT_EQ(Does("payload", Attr(NFTA_PAYLOAD_SREG, 1)), "decides");
  EXPECT_EQ(Does("lookup", Attr(NFTA_LOOKUP_DREG, NFT_REG_VERDICT)), "decides");
  EXPECT_EQ(Does("lookup", Attr(NFTA_LOOKUP_DREG, 1)), "chooses");
  EXPECT_EQ(Does("immediate", Attr(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)),
            "decides" + mark + ", sets labels");
}

TEST(ExpressionTest, AVerdictIsOneInTheVerdictRegisterOnly) {
  const Bytes verdict =
      Attr(NFTA_IMMEDIATE_DATA, Attr(NFTA_DATA_VERDICT, Attr(NFTA_VERDICT_CODE, 1)));
  const auto parsed = [&](uint32_t to) {
    const Bytes data = Join({Attr(NFTA_IMMEDIATE_DREG, to), verdict});
    return ParseVerdict(*Attributes::Parse(data)).has_value();
  };
  EXPECT_TRUE(parsed(NFT_REG_VERDICT));
  EXPECT_FALSE(parsed(NFT_REG_1));
}

TEST(ExpressionTest, ACounterWithoutNumbersHasCountedNothing) {
  EXPECT_EQ(ParseCounter(Attributes()), RuleCounters());
}

TEST(ExpressionTest, WithoutItsAttributesItMayDoAnythingButForWhatNeverTouchesAMark) {
  for (const std::string name : {"last", "bitwise", "cmp", "masq"}) {
    const OtherExpression other = DescribeOther({.name = name, .data = std::nullopt, .bytes = {}});
    EXPECT_TRUE(other.decides) << name;
    EXPECT_EQ(other.marks == Marks{}, name == "last") << name;
  }
}

}  // namespace
}  // namespace kipt::netlink
