// SPDX-License-Identifier: Apache-2.0
//
// A program that undoes every repair is named once and mostly left alone, and nothing else suffers.
// kube-proxy, which empties KUBE-FIREWALL on each sync, is not fought.
#include "agent/process/own_process.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

constexpr char kFight[] = "OwnershipFight:";
constexpr char kIncident[] = "Repaired in";
const std::vector<std::string> kInputJump = {"INPUT", "-j", "KUBE-FIREWALL"};
const std::vector<std::string> kDropMarked = {"KUBE-FIREWALL",
                                              "-m",
                                              "comment",
                                              "--comment",
                                              "kubernetes firewall for dropping marked packets",
                                              "-m",
                                              "mark",
                                              "--mark",
                                              "0x8000/0x8000",
                                              "-j",
                                              "DROP"};
constexpr char kRefills[] = "kube_iptables_agent_refills_total";
// A refill waits for at most a second after the one before.
constexpr absl::Duration kSoon = absl::Milliseconds(1500);

class DaemonFightTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  static Iptables Ip4() { return {.mode = GetParam()}; }
  static std::string Program() { return absl::StrCat("iptables-", NameOf(GetParam())); }

  // A process that does this as often as it can.
  static std::unique_ptr<BackgroundProgram> Loop(const std::string& commands) {
    return std::make_unique<BackgroundProgram>(std::vector<std::string>{
        "/bin/sh", "-c", absl::StrCat("while :; do ", commands, "; done 2>/dev/null")});
  }
  // Deletes the jump to KUBE-POSTROUTING.
  static std::unique_ptr<BackgroundProgram> Opponent() {
    return Loop(absl::StrCat(Program(),
                             " -w -t nat -D POSTROUTING -m comment --comment 'kubernetes "
                             "postrouting rules' -j KUBE-POSTROUTING"));
  }
  // kube-proxy 1.28, which empties KUBE-FIREWALL five times a second.
  static std::unique_ptr<BackgroundProgram> KubeProxy() {
    return std::make_unique<BackgroundProgram>(std::vector<std::string>{
        KIPT_KUBE_PROXY_LIKE, NameOf(GetParam()), KIPT_KUBE_PROXY_INPUTS, "1.28", "0.2"});
  }
  // Ends `kube_proxy`: how long KUBE-FIREWALL then stays without its rule.
  static absl::Duration DelayOfTheLastRefill(BackgroundProgram& kube_proxy) {
    kube_proxy.Signal(SIGTERM);
    EXPECT_EQ(kube_proxy.Wait(), 0);
    const absl::Time last_sync = absl::Now();
    EXPECT_TRUE(WaitUntil([] { return Has("filter", kDropMarked); }));
    return absl::Now() - last_sync;
  }
  static bool Has(const std::string& table, const std::vector<std::string>& rule) {
    return Ip4().Run(Words{"-t", table, "-C"} + rule).exit_code == 0;
  }
};

TEST_P(DaemonFightTest, IsNamedOnceAndDoesNotKeepTheRestFromBeingRepaired) {
  Start(Settings());
  const auto opponent = Opponent();
  ASSERT_TRUE(daemon().Prints(kFight)) << daemon().Output();
  if (GetParam() == IptablesMode::kNft) {
    EXPECT_THAT(daemon().Output(), HasSubstr("second of its repair, by iptables-nft (PID "));
  } else {
    EXPECT_THAT(daemon().Output(), HasSubstr("by a process that was not seen;"));
  }
  EXPECT_TRUE(WaitUntil([] { return absl::StrContains(Readyz(), "OwnershipFight"); })) << Readyz();
  EXPECT_FALSE(IsReady()) << "the jump is missing: " << Readyz();
  EXPECT_EQ(Metric("kube_iptables_agent_family_ready", "family=\"ip\""), 0);
  EXPECT_EQ(Metric("kube_iptables_agent_family_ready", "family=\"ip6\""), 1);

  const auto before = ThreadCosts(daemon().pid());
  const double repairs = Metric("kube_iptables_agent_repair_latency_seconds_count");
  absl::SleepFor(absl::Seconds(3));
  // 100 ms, doubling: 5 in the first 3 seconds.
  EXPECT_LE(Metric("kube_iptables_agent_repair_latency_seconds_count") - repairs, 6);
  const ThreadCost spent = Spent(before, ThreadCosts(daemon().pid()));
  // Of one CPU, 5 %. In legacy the tables are compared after each use of the lock, hundreds in a
  // second, for the opponent's vain attempts are uses too.
  const bool nft = GetParam() == IptablesMode::kNft;
  const int slower = agent::kBuiltWithASanitizer ? 4 : 1;
  EXPECT_LT(spent.cpu, slower * absl::Milliseconds(nft ? 150 : 600));

  const absl::Time struck = absl::Now();
  ASSERT_EQ(Ip4().Run({"-w", "-D", "INPUT", "-j", "KUBE-FIREWALL"}).exit_code, 0);
  EXPECT_TRUE(WaitUntil([] { return Has("filter", kInputJump); }));
  EXPECT_LT(absl::Now() - struck, absl::Seconds(2)) << daemon().Output();

  EXPECT_EQ(CountOf(kFight, daemon().Output()), 1) << daemon().Output();
  EXPECT_EQ(Metric("kube_iptables_agent_ownership_fights_total"), 1);
}

TEST_P(DaemonFightTest, KubeProxyThatEmptiesKubeFirewallIsRefilledOnceASecondAndNotFought) {
  Start(Settings());
  auto kube_proxy = KubeProxy();
  // It claims KUBE-FIREWALL from its first restore on.
  ASSERT_TRUE(MetricReaches(kRefills, 1)) << daemon().Output();
  const int incidents = CountOf(kIncident, daemon().Output());

  const absl::Time start = absl::Now();
  const double refills = Metric(kRefills);
  absl::SleepFor(absl::Seconds(6));
  const double more = Metric(kRefills) - refills;
  EXPECT_GE(more, 3);
  EXPECT_LE(more, absl::ToDoubleSeconds(absl::Now() - start) + 1) << "at most one a second";
  EXPECT_EQ(CountOf(kIncident, daemon().Output()), incidents) << daemon().Output();
  EXPECT_EQ(Metric("kube_iptables_agent_ownership_fights_total"), 0);
  EXPECT_TRUE(IsReady()) << Readyz();

  // What other programs do with the processors only adds to the delay. So one time of three
  // decides.
  absl::Duration shortest = DelayOfTheLastRefill(*kube_proxy);
  for (int more_times = 0; more_times < 2 && shortest >= kSoon; ++more_times) {
    kube_proxy = KubeProxy();
    ASSERT_TRUE(MetricReaches(kRefills, Metric(kRefills) + 1)) << daemon().Output();
    shortest = std::min(shortest, DelayOfTheLastRefill(*kube_proxy));
  }
  EXPECT_LT(shortest, kSoon) << daemon().Output();
}

INSTANTIATE_TEST_SUITE_P(Modes, DaemonFightTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// A second agent keeps the same rules: nothing is there twice, and neither undoes what the other
// does. Next to kubelet and kube-proxy the daemon is in tests/soak and tests/node.
class TwoAgentsTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
};

TEST_P(TwoAgentsTest, RepairTheSameDamageWithoutDoublingOrUndoingEachOther) {
  Start(Settings());
  std::vector<std::string> second_argv = {AgentProgram(), "run",
                                          "--healthz-bind-address=127.0.0.1:10280",
                                          "--metrics-bind-address=127.0.0.1:10281"};
  for (const std::string& flag : Settings().Flags()) second_argv.push_back(flag);
  BackgroundProgram second(second_argv);
  ASSERT_TRUE(WaitUntil([] { return HttpGet(10280, "/readyz").status == 200; })) << second.Output();
  const SavedRules before_ip4 = SavedRules::Of(Of(IpFamily::kIpv4));
  const SavedRules before_ip6 = SavedRules::Of(Of(IpFamily::kIpv6));

  constexpr int kStrikes = 10;
  for (int i = 0; i < kStrikes; ++i) {
    const Iptables iptables = Of(i % 2 == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6);
    switch (i % 3) {
      case 0:
        EXPECT_EQ(iptables.Run({"-w", "-F", "INPUT"}).exit_code, 0);
        break;
      case 1:
        EXPECT_EQ(iptables.Run({"-w", "-F", "KUBE-FIREWALL"}).exit_code, 0);
        break;
      default:
        EXPECT_EQ(iptables.Run({"-w", "-t", "nat", "-F"}).exit_code, 0);
    }
    // More would be a fight. On a busy machine repairs may take longer.
    absl::SleepFor(absl::Seconds(1));
    WaitUntil([&] {
      return SavedRules::Of(Of(IpFamily::kIpv4)) == before_ip4 &&
             SavedRules::Of(Of(IpFamily::kIpv6)) == before_ip6;
    });
    EXPECT_EQ(SavedRules::Of(Of(IpFamily::kIpv4)), before_ip4) << "strike " << i;
    EXPECT_EQ(SavedRules::Of(Of(IpFamily::kIpv6)), before_ip6) << "strike " << i;
  }
  auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const auto incidents = [&] {
    return CountOf(kIncident, daemon().Output()) + CountOf(kIncident, second.Output());
  };
  const int reported = incidents();
  absl::SleepFor(absl::Seconds(2));
  EXPECT_THAT(listener->Drain(), IsOkAndHolds(netlink::RulesetChanges()))
      << "a program still writes";
  EXPECT_EQ(incidents(), reported);
  // The second of the two found it in place.
  EXPECT_GE(reported, kStrikes);
  EXPECT_LE(reported, 2 * kStrikes);
  EXPECT_EQ(Metric("kube_iptables_agent_duplicates_removed_total"), 0);
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output() + second.Output()), 0);
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), kExitOk);
}

INSTANTIATE_TEST_SUITE_P(Modes, TwoAgentsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
