// SPDX-License-Identifier: Apache-2.0
//
// What the daemon reports about packets to 127.0.0.0/8 from neighbours: whether the node is open to
// them (CVE-2020-8558), and how many it has dropped.
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"
#include "tests/interop/packet_world.h"

namespace kipt::testing {
namespace {

constexpr int kPerSecond = 2000;
constexpr char kExposed[] = "kube_iptables_agent_route_localnet_exposed";
constexpr char kDropped[] = "kube_iptables_agent_martian_dropped_packets_total";
constexpr char kWhy[] =
    "route_localnet is 1 for outside and no rule keeps neighbours from 127.0.0.1";

class MartianPostureTest : public WithPacketWorld<DaemonTest>,
                           public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    WithPacketWorld::SetUp();
    ASSERT_TRUE(manager_.bound());
  }

  void StartWith(const std::vector<std::string>& more) {
    StartOnly(
        Words{"--iptables-sync-period=1s", absl::StrCat("--iptables-mode=", NameOf(GetParam()))} +
            more,
        {manager_.Variable()});
    ASSERT_TRUE(daemon().Prints("Watching: ")) << daemon().Output();
  }

  bool BecomesExposed(bool exposed) {
    return WaitUntil([&] { return Metric(kExposed) == (exposed ? 1 : 0) && IsReady() != exposed; });
  }
  static std::string Statusz() { return HttpGet(kMetricsPort, "/statusz").body; }

  // From the neighbour; how many.
  uint64_t SendMartians(uint64_t at_least) {
    const InNetns outside(world_->client());
    PacketSender sender(PacketWorld::MartianPath(kMartianPort), kPerSecond);
    absl::SleepFor(absl::Seconds(1) * static_cast<double>(at_least) / kPerSecond);
    return sender.Stop();
  }

  // Exactly: and the count is unchanged after two more checks.
  ::testing::AssertionResult CountsDropped(uint64_t packets) {
    const auto expected = static_cast<double>(packets);
    if (!MetricReaches(kDropped, expected)) {
      return ::testing::AssertionFailure() << Metric(kDropped) << " instead of " << packets;
    }
    const double syncs = Metric("kube_iptables_agent_syncs_total");
    MetricReaches("kube_iptables_agent_syncs_total", syncs + 2);
    if (Metric(kDropped) == expected) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << Metric(kDropped) << " instead of " << packets;
  }

  void ExpectClosed() {
    EXPECT_TRUE(BecomesExposed(false)) << Readyz();
    listener_->Forget();
    SendMartians(100);
    EXPECT_EQ(listener_->received().packets, 0);
  }

  const Iptables iptables_ = {.mode = GetParam()};
  NotifySocket manager_;
};

TEST_P(MartianPostureTest, WithoutARuleTheNodeIsExposedUntilOneIsMade) {
  StartWith({"--make-iptables-util-chains=false"});
  ASSERT_TRUE(BecomesExposed(true)) << Readyz();
  EXPECT_THAT(Readyz(), HasSubstr(kWhy));
  EXPECT_THAT(Statusz(), HasSubstr(absl::StrCat("Martian packets: EXPOSED: ", kWhy)));
  EXPECT_TRUE(manager_.Receives(absl::StrCat("STATUS=exposed: ", kWhy))) << manager_.Received();
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200) << "a restart would fix nothing";
  SendMartians(100);
  EXPECT_GT(listener_->received().packets, 0) << "it is true";

  // A kubelet, or kube-proxy: the mode is off, the rule is not ours.
  Kubelet(KubeletForm::k1_27GateOn, iptables_);
  ExpectClosed();
  EXPECT_TRUE(manager_.Receives("STATUS=in place")) << manager_.Received();
  EXPECT_THAT(Statusz(), Not(HasSubstr("EXPOSED")));
}

TEST_P(MartianPostureTest, AnUnreachedRuleDoesNotProtect) {
  StartWith({});
  ASSERT_TRUE(BecomesReady()) << Readyz();
  EXPECT_EQ(Metric(kExposed), 0);
  Change(iptables_, {"-I", "INPUT", "-j", "ACCEPT"});
  ASSERT_TRUE(BecomesExposed(true)) << Readyz();
  EXPECT_THAT(Readyz(), HasSubstr(kWhy));
  EXPECT_THAT(Readyz(), HasSubstr("ShadowedJump"));
  EXPECT_EQ(Metric("kube_iptables_agent_shadowed_jumps"), 1);
  EXPECT_TRUE(manager_.Receives(kWhy)) << manager_.Received();
  SendMartians(100);
  EXPECT_GT(listener_->received().packets, 0) << "it is true";
  Change(iptables_, {"-D", "INPUT", "-j", "ACCEPT"});
  EXPECT_TRUE(BecomesExposed(false)) << Readyz();
}

TEST_P(MartianPostureTest, ALoopbackOfAnotherNameIsNoWayInAndANeighboursLoIs) {
  const auto rename = [](const std::string& from, const std::string& to) {
    for (const Words& arguments : {Words{from, "down"}, Words{from, "name", to}, Words{to, "up"}}) {
      EXPECT_EQ(RunProgram(Words{"/usr/sbin/ip", "link", "set"} + arguments).exit_code, 0);
    }
  };
  SetSysctl("ipv4/conf/outside/route_localnet", "0");
  SetSysctl("ipv4/conf/lo/route_localnet", "1");
  rename("lo", "loop0");
  StartWith({"--make-iptables-util-chains=false"});
  ExpectClosed();
  rename("outside", "lo");
  SetSysctl("ipv4/conf/lo/route_localnet", "1");
  EXPECT_TRUE(BecomesExposed(true)) << Readyz();
  EXPECT_THAT(Readyz(), HasSubstr("route_localnet is 1 for lo"));
  listener_->Forget();
  SendMartians(100);
  EXPECT_GT(listener_->received().packets, 0) << "it is true";
  // It drops this node's own packets, and none of that neighbour.
  Change(iptables_,
         {"-t", "mangle", "-A", "INPUT", "!", "-i", "lo", "-d", "127.0.0.0/8", "-j", "DROP"});
  const std::string mode = absl::StrCat("--iptables-mode=", NameOf(iptables_.mode));
  EXPECT_THAT(Agent({"status", mode}).out, HasSubstr("martian packets: EXPOSED"));
}

TEST_P(MartianPostureTest, CountsWhatWasDroppedAcrossARepairThatMakesTheRuleAnew) {
  StartWith({});
  ASSERT_TRUE(BecomesReady()) << Readyz();
  const uint64_t before = SendMartians(400);
  EXPECT_TRUE(CountsDropped(before));
  Change(iptables_, {"-F", "KUBE-FIREWALL"});
  ASSERT_TRUE(WaitUntil([this] {
    return iptables_.Run({"-S", "KUBE-FIREWALL"}).out.find("-j DROP") != std::string::npos;
  })) << daemon().Output();
  const uint64_t after = SendMartians(200);
  EXPECT_TRUE(CountsDropped(before + after));
  EXPECT_EQ(listener_->received().packets, 0);
}

TEST_P(MartianPostureTest, ADormantTableIsWokenByTheDaemon) {
  if (GetParam() != IptablesMode::kNft) return;  // which alone has tables that sleep
  StartWith({});
  ASSERT_TRUE(BecomesReady()) << Readyz();
  Output({"/usr/sbin/nft", "add", "table", "ip", "filter", "{ flags dormant; }"});
  ASSERT_TRUE(WaitUntil([] {
    return Output({"/usr/sbin/nft", "list", "table", "ip", "filter"}).find("dormant") ==
           std::string::npos;
  })) << daemon().Output();
  ExpectClosed();
  EXPECT_EQ(Metric("kube_iptables_agent_drift_detected_total", "kind=\"table_dormant\""), 1);
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, MartianPostureTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
