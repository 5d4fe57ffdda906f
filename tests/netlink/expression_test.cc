// SPDX-License-Identifier: Apache-2.0
//
// Attributes, and what each expression of the kernel (net/netfilter/nft_*.c) does that no Rule has
// a place for.
#include <gtest/gtest.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

#include "netlink/attributes.h"
#include "netlink/expression_effect.h"
#include "netlink/requests.h"
#include "netlink/statement.h"
#include "netlink/translation.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::expression_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

std::string Does(const std::string& name, const Bytes& data) {
  const OtherExpression other =
      DescribeOther({.name = name, .data = Attributes::Parse(data), .bytes = {}});
  std::string does = other.decides     ? "decides"
                     : other.selects   ? "chooses"
                     : other.condition ? "loads"
                                       : "continues";
  if (other.terminal) does += " and ends";
  if (other.perhaps_terminal) does += " and perhaps ends";
  if (other.marks.tested != 0) does += ", reads the mark";
  if (other.marks.set != 0) does += ", sets the mark";
  if (other.marks.labels_set.any()) does += ", sets labels";
  return does;
}

TEST(ExpressionTest, OfEachOfTheKernelsItIsKnownWhatItDoes) {
  for (const char* name : {"bitwise", "byteorder", "counter", "immediate", "last", "log"}) {
    EXPECT_EQ(Does(name, name == std::string("immediate") ? Attr(NFTA_IMMEDIATE_DREG, 1) : Bytes()),
              "continues")
        << name;
  }
  for (const char* name : {"cmp", "connlimit", "limit", "lookup", "quota", "range"}) {
    EXPECT_EQ(Does(name, {}), "chooses") << name;
  }
  for (const char* name : {"ct", "dynset", "exthdr", "fib", "hash", "numgen", "osf", "payload",
                           "rt", "socket", "tunnel", "xfrm"}) {
    EXPECT_EQ(Does(name, {}), "loads") << name;
  }
  for (const char* name : {"fwd", "masq", "nat", "redir", "reject"}) {
    EXPECT_EQ(Does(name, {}), "decides and ends") << name;
  }
  for (const char* name : {"dup", "notrack"}) EXPECT_EQ(Does(name, {}), "decides") << name;
  for (const char* name : {"flow_offload", "objref", "synproxy", "tproxy"}) {
    EXPECT_EQ(Does(name, {}), "decides and perhaps ends") << name;
  }
  EXPECT_EQ(Does("meta", {}), "loads, reads the mark");
  const std::string marks = ", reads the mark, sets the mark, sets labels";
  EXPECT_EQ(Does("queue", {}), "decides and ends" + marks);
  for (const char* name : {"brandnew", "another text"}) {
    EXPECT_EQ(Does(name, {}), "decides and perhaps ends" + marks) << name;
  }
}

TEST(ExpressionTest, WhatANamedObjectDoesDependsOnItsType) {
  const auto does = [](int type) {
    return Does("objref", Attr(NFTA_OBJREF_IMM_TYPE, static_cast<uint32_t>(type)));
  };
  EXPECT_EQ(does(NFT_OBJECT_COUNTER), "continues");
  for (const int type : {NFT_OBJECT_QUOTA, NFT_OBJECT_LIMIT, NFT_OBJECT_CONNLIMIT}) {
    EXPECT_EQ(does(type), "chooses") << type;
  }
  for (const int type : {NFT_OBJECT_CT_HELPER, NFT_OBJECT_TUNNEL, NFT_OBJECT_CT_TIMEOUT,
                         NFT_OBJECT_SECMARK, NFT_OBJECT_CT_EXPECT}) {
    EXPECT_EQ(does(type), "decides") << type;
  }
  EXPECT_EQ(does(NFT_OBJECT_SYNPROXY), "decides and perhaps ends");
  EXPECT_EQ(Does("objref", Attr(NFTA_OBJREF_SET_SREG, 1)), "loads") << "a map may lack the packet";
}

TEST(ExpressionTest, AnImmediateWithoutARegisterIsAVerdictAndALogWithAGroupATarget) {
  EXPECT_EQ(Does("immediate", {}),
            "decides and perhaps ends, reads the mark, sets the mark, sets labels");
  const Bytes group = Attr(NFTA_LOG_GROUP, Bytes{0, 3});
  const OtherExpression log =
      DescribeOther({.name = "log", .data = Attributes::Parse(group), .bytes = {}});
  EXPECT_EQ(log.text, "-j NFLOG --nflog-group 3");
  EXPECT_TRUE(log.is_target);
  EXPECT_EQ(Does("fib", Attr(NFTA_FIB_FLAGS, NFTA_FIB_F_MARK)), "loads, reads the mark");
  EXPECT_EQ(Does("fib", Attr(NFTA_FIB_FLAGS, NFTA_FIB_F_SADDR)), "loads");
}

TEST(ExpressionTest, ATestThatStoresWritesToThePacket) {
  const std::string mark = ", reads the mark, sets the mark";
  EXPECT_EQ(Does("ct", Attr(NFTA_CT_SREG, 1)), "decides, sets labels");
  EXPECT_EQ(Does("exthdr", Attr(NFTA_EXTHDR_SREG, 1)), "decides");
  EXPECT_EQ(Does("meta", Attr(NFTA_META_SREG, 1)), "decides" + mark);
  EXPECT_EQ(Does("payload", Attr(NFTA_PAYLOAD_SREG, 1)), "decides");
  EXPECT_EQ(Does("lookup", Attr(NFTA_LOOKUP_DREG, NFT_REG_VERDICT)), "decides and perhaps ends");
  EXPECT_EQ(Does("lookup", Attr(NFTA_LOOKUP_DREG, 1)), "chooses");
  EXPECT_EQ(Does("immediate", Attr(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)),
            "decides and perhaps ends" + mark + ", sets labels");
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

TEST(ExpressionTest, WithoutItsAttributesItMayDoAnythingExceptWhatNeverTouchesAMark) {
  for (const std::string name : {"last", "bitwise", "cmp", "masq"}) {
    const OtherExpression other = DescribeOther({.name = name, .data = std::nullopt, .bytes = {}});
    EXPECT_TRUE(other.decides) << name;
    EXPECT_EQ(other.marks == Marks{}, name == "last") << name;
  }
}

bool Lists(const std::vector<Bytes>& rule, Family family = Family::kIPv4) {
  const Bytes list = Join(rule);
  return IsListable(family, ParseExpressions(list));
}
Bytes Named(const std::string& name, const Bytes& data = {}) { return ExpressionBytes(name, data); }
Bytes Network(uint32_t offset) { return Payload(NFT_PAYLOAD_NETWORK_HEADER, offset, 1); }
Bytes Transport(uint32_t offset) { return Payload(NFT_PAYLOAD_TRANSPORT_HEADER, offset, 1); }

TEST(ListableTest, ExpressionsWithoutAnOptionAreNot) {
  for (const char* name :
       {"bitwise", "cmp", "counter", "immediate", "lookup", "match", "range", "target", "limit"}) {
    EXPECT_TRUE(Lists({Named(name)})) << name;
  }
  for (const char* name : {"byteorder", "ct", "dynset", "fib", "log", "masq", "nat", "queue", ""}) {
    EXPECT_FALSE(Lists({Named("counter"), Named(name)})) << name;
  }
  EXPECT_TRUE(Lists({Named("log", Attr(NFTA_LOG_GROUP, Bytes{0, 5}))}));
  EXPECT_FALSE(Lists({Named("limit", Attr(NFTA_LIMIT_TYPE, NFT_LIMIT_PKT_BYTES))}));
  EXPECT_FALSE(Lists({Named("limit", Attr(NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV))}));
  EXPECT_FALSE(
      IsListable(Family::kIPv4, {{Expression{.name = "counter", .data = {}, .bytes = {}}}}));
}

TEST(ListableTest, MetadataAndNetworkHeadersAreInPart) {
  for (const uint32_t key :
       {NFT_META_PROTOCOL, NFT_META_MARK, NFT_META_IIF, NFT_META_OIF, NFT_META_IIFNAME,
        NFT_META_OIFNAME, NFT_META_PKTTYPE, NFT_META_L4PROTO}) {
    EXPECT_TRUE(Lists({Meta(key)})) << key;
    EXPECT_FALSE(Lists({SetMeta(key)})) << key;
  }
  EXPECT_TRUE(Lists({SetMeta(NFT_META_NFTRACE)}));
  EXPECT_FALSE(Lists({Meta(NFT_META_NFTRACE)}));
  EXPECT_FALSE(Lists({Meta(NFT_META_SKUID)}));
  EXPECT_FALSE(Lists({Named("meta")}));
  for (uint32_t offset = 0; offset < 40; ++offset) {
    const std::vector<uint32_t> v4 = {6, 8, 9, 12, 16};
    const std::vector<uint32_t> v6 = {6, 7, 8, 24};
    EXPECT_EQ(Lists({Network(offset)}), std::ranges::count(v4, offset) == 1) << offset;
    EXPECT_EQ(Lists({Network(offset)}, Family::kIPv6), std::ranges::count(v6, offset) == 1)
        << offset;
  }
  EXPECT_TRUE(Lists({Payload(NFT_PAYLOAD_LL_HEADER, 0, 1)}));
  EXPECT_FALSE(Lists({Payload(NFT_PAYLOAD_INNER_HEADER, 0, 1)}));
  EXPECT_FALSE(Lists({Named("payload")}));
  EXPECT_TRUE(Lists({Named("payload", Attr(NFTA_PAYLOAD_SREG, 1))}));
}

TEST(ListableTest, TransportHeadersAreIfTheProtocolIsNamedBefore) {
  EXPECT_FALSE(Lists({Transport(2)}));
  EXPECT_FALSE(Lists({Transport(2), Meta(NFT_META_L4PROTO), Compare({IPPROTO_TCP})}));
  struct {
    uint8_t protocol;
    uint32_t listed;  // offsets below this one
  } const rows[] = {{IPPROTO_TCP, 20},   {IPPROTO_UDP, 20}, {IPPROTO_ICMP, 2},
                    {IPPROTO_ICMPV6, 1}, {IPPROTO_SCTP, 0}, {0, 0}};
  for (const auto& [protocol, listed] : rows) {
    for (uint32_t offset = 0; offset < 5; ++offset) {
      EXPECT_EQ(Lists({Meta(NFT_META_L4PROTO), Compare({protocol}), Transport(offset)}),
                offset < listed);
      EXPECT_EQ(Lists({Network(9), Compare({protocol}), Transport(offset)}), offset < listed);
      EXPECT_EQ(Lists({Network(6), Compare({protocol}), Transport(offset)}, Family::kIPv6),
                offset < listed);
    }
  }
  // Another value, or several.
  EXPECT_FALSE(Lists({Network(8), Compare({IPPROTO_TCP}), Transport(2)}));
  EXPECT_FALSE(Lists({Network(9), Compare({IPPROTO_TCP}), Transport(2)}, Family::kIPv6));
  EXPECT_FALSE(
      Lists({Meta(NFT_META_L4PROTO), Named("lookup"), Compare({IPPROTO_TCP}), Transport(2)}));
  EXPECT_FALSE(Lists({Meta(NFT_META_L4PROTO), Compare({6, 6}), Transport(2)}));
}

// ---- what expressions are in ----

TEST(AttributesTest, SeesAnAttributeThatComesTwice) {
  const Bytes bytes = Join({Attr(1, 1), Attr(1, 2)});
  EXPECT_FALSE(Attributes::Parse(bytes)->HasOnly({1}));
}

TEST(AttributesTest, TakesATextWithoutItsNul) {
  const Bytes bytes = Attr(1, FromHex("61626364"));
  EXPECT_EQ(Attributes::Parse(bytes)->Text(1), "abcd");
}

TEST(AttributesTest, TakesTheLastWithoutItsPadding) {
  const Bytes bytes = Join({HostU16(5), HostU16(1), FromHex("2a")});
  const auto attributes = Attributes::Parse(bytes);
  ASSERT_TRUE(attributes.has_value());
  EXPECT_EQ(attributes->Bytes(1)->size(), 1U);
}

TEST(RequestsTest, FollowEachOtherWithTheirTextsHoweverLong) {
  Requests requests(7);
  EXPECT_TRUE(requests.bytes().empty());
  const std::vector<std::string> texts = {"", "abc", std::string(60000, 'x'), "abcd"};
  for (const std::string& text : texts) requests.Begin(0, 0, 0, {{1, text}, {2, "end"}});
  ASSERT_EQ(requests.count(), texts.size());
  size_t size = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const WireBytes message = requests.Message(i);
    size += message.size();
    EXPECT_EQ(Attributes::OfMessage(message).Text(1), texts[i]);
    EXPECT_EQ(Attributes::OfMessage(message).Text(2), "end");
    EXPECT_EQ(ToHex(Bytes(message.begin() + 8, message.begin() + 12)),
              ToHex(HostU32(requests.first() + static_cast<uint32_t>(i))));
  }
  EXPECT_EQ(requests.bytes().size(), size);
}

}  // namespace
}  // namespace kipt::netlink::expression_test
