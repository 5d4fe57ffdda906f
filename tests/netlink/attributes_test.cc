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

#include <string>
#include <vector>

#include "netlink/requests.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

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
              ToHex(testing::HostU32(requests.first() + static_cast<uint32_t>(i))));
  }
  EXPECT_EQ(requests.bytes().size(), size);
}

}  // namespace
}  // namespace kipt::netlink
