// SPDX-License-Identifier: Apache-2.0
//
// What /metrics and the log tell of a daemon's retirement.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

constexpr char kRetired[] = "kube_iptables_agent_retired_total";
constexpr char kClaims[] = "kube_iptables_agent_stale_claims";
constexpr char kReferences[] = "kube_iptables_agent_foreign_references";
constexpr char kStale[] = "kube_iptables_agent_stale_chains";

class RetirementMetricsTest : public DaemonTest,
                              public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOff, {.family = family, .mode = GetParam()});
    }
    Change({"-t", "nat", "-N", "THIRD-PARTY"});
    for (const char* port : {"4001", "4002"}) {
      Change(
          {"-t", "nat", "-A", "THIRD-PARTY", "-p", "udp", "--dport", port, "-j", "KUBE-MARK-MASQ"});
    }
  }

  void Change(const std::vector<std::string>& arguments) const {
    const ProgramResult result = Iptables{.mode = GetParam()}.Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  // Of retired_total: ip or ip6, TABLE, CHAIN.
  static double Retired(const std::string& family, const std::string& table,
                        const std::string& chain) {
    return Metric(kRetired, absl::StrCat("{chain=\"", chain, "\",family=\"", family, "\",table=\"",
                                         table, "\"}"));
  }
  static double Claims(const std::string& family, const std::string& chain,
                       const std::string& claim) {
    return Metric(kClaims, absl::StrCat("{chain=\"", chain, "\",claim=\"", claim, "\",family=\"",
                                        family, "\""));
  }
};

TEST_P(RetirementMetricsTest, AndTheLogTellWhatWentWhatIsClaimedAndHowManyRulesOfOthersThereAre) {
  const TemporaryTree no_cni;
  Start({.iptables = GetParam()}, {"--stale-chains=retire", "--cni-conf-dir=" + no_cni.root()});
  ASSERT_TRUE(MetricReaches(kRetired, 1)) << daemon().Output();
  // Of each chain its rules, and the chain.
  EXPECT_EQ(Retired("ip", "nat", "KUBE-MARK-DROP"), 2);
  EXPECT_EQ(Retired("ip", "nat", "KUBE-MARK-MASQ"), 0);
  EXPECT_EQ(Retired("ip", "filter", "KUBE-FIREWALL"), 1) << "the drop-mark rule";
  EXPECT_EQ(Retired("ip6", "nat", "KUBE-MARK-DROP"), 2);
  EXPECT_EQ(Retired("ip6", "nat", "KUBE-MARK-MASQ"), 2);
  EXPECT_EQ(Retired("ip6", "nat", "KUBE-POSTROUTING"), 4);
  EXPECT_EQ(Retired("ip6", "nat", "POSTROUTING"), 1) << "the jump";
  EXPECT_EQ(Retired("ip6", "filter", "KUBE-FIREWALL"), 2) << "nothing jumped to it in 1.27";
  EXPECT_EQ(Metric(kRetired), 14);

  EXPECT_EQ(Claims("ip", "KUBE-MARK-MASQ", "foreignJump"), 1);
  EXPECT_EQ(Claims("ip", "KUBE-POSTROUTING", "markedPackets"), 1);
  EXPECT_EQ(Claims("ip", "KUBE-KUBELET-CANARY", "liveKubelet"), 3) << "mangle, nat, filter";
  EXPECT_EQ(Claims("ip6", "KUBE-KUBELET-CANARY", "liveKubelet"), 3);
  EXPECT_EQ(Metric(kClaims), 8);
  EXPECT_EQ(Metric(kReferences, "{chain=\"KUBE-MARK-MASQ\",family=\"ip\",table=\"nat\"}"), 2);
  EXPECT_EQ(Metric(kReferences), 2);
  EXPECT_EQ(Metric(kStale, "family=\"ip\""), 5) << "two, and three canaries";
  EXPECT_EQ(Metric(kStale, "family=\"ip6\""), 3);
  EXPECT_EQ(Metric("kube_iptables_agent_drift_detected_total"), 0) << "nobody damaged anything";
  EXPECT_TRUE(IsReady()) << "what is kept is no fault";

  const std::string mode = absl::StrCat("Stale in iptables ", NameOf(GetParam()));
  EXPECT_TRUE(daemon().Prints(mode + ", and kept: foreignJump (2): ip nat KUBE-MARK-MASQ"))
      << daemon().Output();
  EXPECT_THAT(daemon().Output(), HasSubstr("; markedPackets (1): ip nat KUBE-POSTROUTING"));
  EXPECT_THAT(daemon().Output(), HasSubstr("; liveKubelet (6): "));
  EXPECT_FALSE(daemon().Prints(mode, 2, absl::Seconds(1))) << "said once";
}

// Whose CNI configurations cannot be read, because they are the host's.
TEST_P(RetirementMetricsTest, TheLogSaysWhyADaemonInAContainerRetiresNothing) {
  StartProgram({"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", AgentProgram(), "run",
                absl::StrCat("--iptables-mode=", NameOf(GetParam())), "--stale-chains=retire"});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  EXPECT_TRUE(
      daemon().Prints("a CNI configuration may name it: CNI configurations: this process is "
                      "in a container (another pid namespace); give --host-root"))
      << daemon().Output();
  EXPECT_EQ(Metric(kRetired), 0);
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, RetirementMetricsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
