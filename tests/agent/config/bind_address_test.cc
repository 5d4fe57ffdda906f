// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>

#include <ostream>
#include <string>

#include "agent/config/value_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kipt::agent::bind_address_test {
namespace {

constexpr auto RowName = [](const auto& row) { return row.param.name; };

TEST(BindAddressTest, OfIPv4IsWhatBindWants) {
  const auto address = ParseBindAddress("127.0.0.1:10270");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->family(), AF_INET);
  ASSERT_EQ(address->size, sizeof(sockaddr_in));
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address->storage);
  EXPECT_EQ(ntohl(ipv4.sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_EQ(ntohs(ipv4.sin_port), 10270);
}

TEST(BindAddressTest, OfIPv6IsWhatBindWants) {
  const auto address = ParseBindAddress("[::1]:65535");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->family(), AF_INET6);
  ASSERT_EQ(address->size, sizeof(sockaddr_in6));
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address->storage);
  EXPECT_TRUE(IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr));
  EXPECT_EQ(ntohs(ipv6.sin6_port), 65535);
}

struct Text {
  std::string name;
  std::string text;
};
void PrintTo(const Text& row, std::ostream* out) { *out << row.name; }

class GoodBindAddressTest : public ::testing::TestWithParam<Text> {};
TEST_P(GoodBindAddressTest, IsTaken) {
  EXPECT_TRUE(ParseBindAddress(GetParam().text).ok()) << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(Texts, GoodBindAddressTest,
                         ::testing::Values(Text{"AnyPort", "127.0.0.1:0"},
                                           Text{"AnyAddress", "0.0.0.0:1"},
                                           Text{"AnyIPv6Address", "[::]:1"},
                                           Text{"AMappedAddress", "[::ffff:127.0.0.1]:80"}),
                         RowName);

class RefusedBindAddressTest : public ::testing::TestWithParam<Text> {};
TEST_P(RefusedBindAddressTest, IsRefusedWithAnExample) {
  const auto address = ParseBindAddress(GetParam().text);
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(address.status().message()), ::testing::HasSubstr("[::1]:10270"));
}
INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedBindAddressTest,
    ::testing::Values(Text{"Nothing", ""}, Text{"NoPort", "127.0.0.1"},
                      Text{"AnEmptyPort", "127.0.0.1:"}, Text{"NoHost", ":10270"},
                      Text{"APortAlone", "10270"}, Text{"AName", "localhost:10270"},
                      Text{"APortThatIsTooLarge", "127.0.0.1:65536"},
                      Text{"APortOfSixDigits", "127.0.0.1:000080"},
                      Text{"ANegativePort", "127.0.0.1:-1"}, Text{"ASignedPort", "127.0.0.1:+1"},
                      Text{"APortWithASpace", "127.0.0.1: 80"},
                      Text{"ANameOfAPort", "127.0.0.1:http"}, Text{"IPv6WithoutBrackets", "::1:80"},
                      Text{"IPv4InBrackets", "[127.0.0.1]:80"}, Text{"HalfABracket", "[::1:80"},
                      Text{"NoPortBehindBrackets", "[::1]"}, Text{"EmptyBrackets", "[]:80"},
                      Text{"AZone", "[fe80::1%lo]:80"}, Text{"AnOctalAddress", "127.0.0.01:80"},
                      Text{"AShortAddress", "127.1:80"}, Text{"AUrl", "http://127.0.0.1:80"},
                      Text{"AZeroByte", std::string("127.0.0.1\0:80", 13)}),
    RowName);

}  // namespace
}  // namespace kipt::agent::bind_address_test
