// SPDX-License-Identifier: Apache-2.0
#include "netlink/attributes.h"

#include <gtest/gtest.h>
// Before the kernel's.
#include <netinet/in.h>
// Then these.
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <optional>
#include <string>
#include <vector>

#include "netlink/requests.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

TEST(AttributesTest, ReadsWhatIsThere) {
  const Bytes bytes = Join({Attr(1, 0xfffffffe), Attr(2, Text("name")),
                            Attr(3, FromHex("0102030405060708")), Attr(0x8004, Attr(1, 5))});
  const auto attributes = Attributes::Parse(bytes);
  ASSERT_TRUE(attributes.has_value());
  EXPECT_EQ(attributes->U32(1), 0xfffffffeU);
  EXPECT_EQ(attributes->Text(2), "name");
  EXPECT_EQ(attributes->U64(3), 0x0102030405060708U);
  // NLA_F_NESTED is no part of the type.
  EXPECT_EQ(attributes->Nest(4).U32(1), 5U);
  EXPECT_TRUE(attributes->HasOnly({1, 2, 3, 4}));
  EXPECT_FALSE(attributes->HasOnly({1, 2, 3}));
}

TEST(AttributesTest, HasNothingForAnotherTypeOrSize) {
  const Bytes bytes = Join({Attr(1, FromHex("0102")), Attr(2, 7)});
  const auto attributes = Attributes::Parse(bytes);
  ASSERT_TRUE(attributes.has_value());
  EXPECT_EQ(attributes->U32(1), std::nullopt);
  EXPECT_EQ(attributes->U64(2), std::nullopt);
  EXPECT_EQ(attributes->U32(9), std::nullopt);
  EXPECT_EQ(attributes->Text(9), std::nullopt);
  EXPECT_TRUE(attributes->Nest(1).all().empty());
}

TEST(AttributesTest, SeesAnAttributeThatComesTwice) {
  const Bytes bytes = Join({Attr(1, 1), Attr(1, 2)});
  EXPECT_FALSE(Attributes::Parse(bytes)->HasOnly({1}));
}

TEST(AttributesTest, TakesATextWithoutItsNul) {
  const Bytes bytes = Attr(1, FromHex("61626364"));
  EXPECT_EQ(Attributes::Parse(bytes)->Text(1), "abcd");
}

TEST(AttributesTest, RefusesLengthsThatDoNotFit) {
  struct Row {
    std::string name;
    Bytes bytes;
  };
  const std::vector<Row> rows = {
      {"half a header", FromHex("0800")},
      {"shorter than its header", Join({HostU16(3), HostU16(1)})},
      {"of no length", Join({HostU16(0), HostU16(1), FromHex("00000000")})},
      {"longer than the rest", Join({HostU16(9), HostU16(1), FromHex("00000000")})},
      {"something behind the last", Join({Attr(1, 1), FromHex("00")})},
  };
  for (const Row& row : rows) {
    EXPECT_FALSE(Attributes::Parse(row.bytes).has_value()) << row.name;
  }
  EXPECT_TRUE(Attributes::Parse({}).has_value());
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
              ToHex(testing::HostU32(requests.first() + static_cast<uint32_t>(i))));
  }
  EXPECT_EQ(requests.bytes().size(), size);
}

TEST(AttributesTest, StandBehindTheHeadersOfAMessage) {
  const Bytes headers(20, 0);
  EXPECT_TRUE(Attributes::OfMessage(headers).all().empty());
  EXPECT_TRUE(Attributes::OfMessage(WireBytes(headers).subspan(1)).all().empty());
  const Bytes message = Join({headers, Attr(1, 5)});
  EXPECT_EQ(Attributes::OfMessage(message).U32(1), 5U);
}

}  // namespace
}  // namespace kipt::netlink
