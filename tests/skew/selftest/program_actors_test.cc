// SPDX-License-Identifier: Apache-2.0
//
// Programs as actors: the stand-in of tests/systemd in place of a kubelet, and stand_in_proxy.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {
namespace {

class ProgramKubeletTest : public ActorTest {
 protected:
  static KubeletSettings Settings() { return {.version = {{1, 24}, {}}, .iptables = Choice()}; }

  void SetUp() override {
    ActorTest::SetUp();
    folder_.emplace();
  }
  std::unique_ptr<NodeAgent> Started() {
    EXPECT_TRUE(
        folder_->WriteFile("kubelet",
                           absl::StrCat("#!/bin/sh\nFOLDER=", folder_->Path(""),
                                        " PERIOD=0.2 exec " KIPT_TESTS_DIR "/systemd/kubelet\n"),
                           /*executable=*/true));
    std::unique_ptr<NodeAgent> kubelet = NewProgramKubelet(folder_->Path("kubelet"), Settings());
    EXPECT_TRUE(Went(kubelet->Start()));
    return kubelet;
  }
  static void ExpectItsRules() {
    for (const testing::Iptables& iptables : {V4(), V6()}) {
      EXPECT_EQ(RulesIn(iptables, "nat", "KUBE-POSTROUTING").size(), 3U);
      EXPECT_EQ(RulesIn(iptables, "nat", "KUBE-MARK-DROP").size(), 1U);
      EXPECT_TRUE(Saved(iptables).HasChain("mangle", "KUBE-IPTABLES-HINT"));
    }
    EXPECT_EQ(RulesIn(V4(), "filter", "KUBE-FIREWALL").size(), 2U);
  }

  // In the /run of the test.
  std::optional<testing::ScratchDirectory> folder_;
};

TEST_P(ProgramKubeletTest, HasSyncedWhenAnActIsOver) {
  const std::unique_ptr<NodeAgent> kubelet = Started();
  ExpectItsRules();
  EXPECT_TRUE(Went(FlushEverything(Choice())));
  EXPECT_TRUE(Went(kubelet->Tick()));
  ExpectItsRules();
  EXPECT_TRUE(Went(kubelet->Stop()));
  ExpectItsRules();
}

// The canaries of the first are there, and do not count.
TEST_P(ProgramKubeletTest, StartsOverTheRulesOfAnother) {
  EXPECT_TRUE(Went(Started()->Stop()));
  EXPECT_EQ(V4().Run({"-t", "nat", "-F", "KUBE-POSTROUTING"}).exit_code, 0);
  const std::unique_ptr<NodeAgent> second = Started();
  ExpectItsRules();
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgramKubeletTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy), ModeName);

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
