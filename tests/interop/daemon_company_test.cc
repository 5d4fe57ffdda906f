// SPDX-License-Identifier: Apache-2.0
//
// A second agent keeps the same rules: nothing is there twice, and neither undoes what the other
// does. Next to kubelet and kube-proxy the daemon is in tests/soak and tests/node.
#include "tests/interop/daemon_fixture.h"
#include "tests/support/generation_listener.h"

namespace kipt::testing {
namespace {

constexpr char kIncident[] = "Repaired in";

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
  const auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const auto incidents = [&] {
    return CountOf(kIncident, daemon().Output()) + CountOf(kIncident, second.Output());
  };
  const int told = incidents();
  absl::SleepFor(absl::Seconds(2));
  const auto changes = (*listener)->Drain();
  ASSERT_THAT(changes, IsOk());
  EXPECT_THAT(*changes, IsEmpty()) << "somebody still writes";
  EXPECT_EQ(incidents(), told);
  // Whoever came second found it in place.
  EXPECT_GE(told, kStrikes);
  EXPECT_LE(told, 2 * kStrikes);
  EXPECT_EQ(Metric("kube_iptables_agent_duplicates_removed_total"), 0);
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output() + second.Output()), 0);
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), kExitOk);
}

INSTANTIATE_TEST_SUITE_P(Modes, TwoAgentsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
