// SPDX-License-Identifier: Apache-2.0
//
// A kube-proxy program as an actor: stand_in_proxy, next to this file, in place of a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/selftest/actor_fixture.h"

namespace kipt::skew {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kStandIn = absl::StrCat(KIPT_TESTS_DIR, "/skew/selftest/stand_in_proxy");

class ProgramProxyTest : public ActorTest {
 protected:
  static ProxyActorSettings Settings() {
    return {.version = {{1, 30}},
            .iptables = Choice(),
            .pod_cidr_v4 = "10.180.0.0/24",
            .pod_cidr_v6 = "fd00:180::/64",
            .node_ip_v4 = "192.168.50.2",
            .node_ip_v6 = "fd00:50::2"};
  }
  static std::unique_ptr<ServiceProxy> Started() {
    std::unique_ptr<ServiceProxy> proxy = NewProgramProxy(kStandIn, Settings());
    EXPECT_TRUE(Went(proxy->Start(TestServices(IpFamily::kIpv4), TestServices(IpFamily::kIpv6))));
    return proxy;
  }
  static std::vector<std::string> Rules(const testing::Iptables& iptables) {
    return RulesIn(iptables, "nat", "STAND-IN");
  }
};

TEST_P(ProgramProxyTest, HasWrittenAllServicesWhenAnActIsOver) {
  const std::unique_ptr<ServiceProxy> proxy = Started();
  // 15 endpoints of 10 services, for TCP and UDP; and the marker's.
  EXPECT_EQ(Rules(V4()).size(), 31U);
  EXPECT_EQ(Rules(V6()).size(), 31U);
  EXPECT_THAT(Rules(V4()), Contains(HasSubstr("-d 172.30.0.1/32")));
  EXPECT_THAT(Rules(V6()), Contains(HasSubstr("-d fd00:30::1/128")));
  EXPECT_TRUE(Went(proxy->Sync({}, TestServices(IpFamily::kIpv6))));
  EXPECT_EQ(Rules(V4()).size(), 1U);
  EXPECT_EQ(Rules(V6()).size(), 31U);
}

TEST_P(ProgramProxyTest, DoesNothingBetweenActs) {
  const std::unique_ptr<ServiceProxy> proxy = Started();
  EXPECT_TRUE(Went(FlushEverything(Choice())));
  // Longer than its sync period.
  absl::SleepFor(absl::Milliseconds(1500));
  EXPECT_THAT(Rules(V4()), IsEmpty());
  EXPECT_TRUE(Went(proxy->Tick()));
  EXPECT_EQ(Rules(V4()).size(), 31U);
  EXPECT_EQ(Rules(V6()).size(), 31U);
}

// As an upgrade does: rules of the first still name its marker.
TEST_P(ProgramProxyTest, StartsOverTheRulesOfAnother) {
  Started();
  const std::unique_ptr<ServiceProxy> second = Started();
  EXPECT_EQ(Rules(V4()).size(), 31U);
  EXPECT_THAT(Rules(V4()), Contains(HasSubstr("--to-destination 203.0.113.2:9")));
  EXPECT_THAT(Rules(V4()), Not(Contains(HasSubstr("--to-destination 203.0.113.1:9"))));
}

TEST_P(ProgramProxyTest, CleansUp) {
  Started();
  EXPECT_TRUE(Went(FlushTable(Choice(), "nat")));
  EXPECT_TRUE(Went(CleanUpByProgram(kStandIn, Settings())));
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "STAND-IN"));
  const Act failed = CleanUpByProgram("/bin/false", Settings());
  EXPECT_FALSE(failed.ok);
  EXPECT_THAT(failed.error, HasSubstr("exit code 1"));
}

TEST_P(ProgramProxyTest, FailsAnActWhenTheProgramEnds) {
  const std::unique_ptr<ServiceProxy> proxy = NewProgramProxy("/bin/false", Settings());
  EXPECT_THAT(proxy->Start({}, {}).error, HasSubstr("ended with 1"));
  EXPECT_THAT(proxy->Sync({}, {}).error, HasSubstr("ended with 1"));
  EXPECT_THAT(proxy->Tick().error, HasSubstr("ended with 1"));
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgramProxyTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy), ModeName);

}  // namespace
}  // namespace kipt::skew
