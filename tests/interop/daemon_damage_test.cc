// SPDX-License-Identifier: Apache-2.0
//
// What people and programs do to rules that are in place, and that the daemon repairs it, names it
// and counts it, and puts nothing else back and nothing else away.
#include <array>
#include <ostream>

#include "tests/interop/daemon_fixture.h"
#include "tests/interop/damage_rows.h"

namespace kipt::testing {
namespace {

constexpr char kIncident[] = "Repaired in";

struct Case {
  Damage damage;
  IptablesMode mode;
  IpFamily family;
  bool labels = false;
};

void PrintTo(const Case& row, std::ostream* stream) { *stream << row.damage.name; }

std::vector<Case> Cases(const std::vector<Damage>& rows, bool labels) {
  std::vector<Case> cases;
  for (const Damage& row : rows) {
    for (const IptablesMode mode : kBothModes) {
      for (const IpFamily family : kBothFamilies) cases.push_back({row, mode, family, labels});
    }
  }
  return cases;
}

std::string CommandOf(const Case& row) {
  return absl::StrCat(row.family == IpFamily::kIpv4 ? "iptables-" : "ip6tables-", NameOf(row.mode),
                      row.damage.program_suffix)
      .substr(0, 15);
}

std::string FamilyNameOf(IpFamily family) { return family == IpFamily::kIpv4 ? "ip" : "ip6"; }

class DaemonDamageTest : public DaemonTest {
 protected:
  static AgentSettings Settings(IptablesMode mode) {
    return {.ownership_cleanup = false, .iptables = mode};
  }
  static void Load(IptablesMode mode, const std::string& text) {
    for (const IpFamily family : kBothFamilies) {
      DaemonTest::Load({.family = family, .mode = mode}, text);
    }
  }
  // The line of the one incident there has been.
  std::string TheIncident() {
    std::string log = daemon().Output();
    EXPECT_EQ(CountOf(kIncident, log), 1) << log;
    return log.substr(std::min(log.find(kIncident), log.size()));
  }
  void ExpectCounted(double items) {
    EXPECT_EQ(Metric("kube_iptables_agent_repair_latency_seconds_count"), 1);
    EXPECT_GE(Metric("kube_iptables_agent_drift_detected_total"), items);
    EXPECT_EQ(Metric("kube_iptables_agent_refills_total"), 0);
    EXPECT_TRUE(BecomesReady()) << Readyz();
  }
};

class EachDamageTest : public DaemonDamageTest, public ::testing::WithParamInterface<Case> {
 protected:
  void StartFor(const Case& row) {
    if (!row.labels) return Start(Settings(row.mode));
    Start({.ownership_cleanup = true, .iptables = row.mode},
          {"--feature-gates=ConnLabelMarking=true"});
  }
};

TEST_P(EachDamageTest, IsRepairedNamedAndCounted) {
  const Case& row = GetParam();
  const Iptables iptables{.family = row.family, .mode = row.mode};
  const Iptables other{.family = row.family == IpFamily::kIpv4 ? IpFamily::kIpv6 : IpFamily::kIpv4,
                       .mode = row.mode};
  Load(row.mode, kForeignRules);
  StartFor(row);
  Content expected = ContentOf(iptables);
  const Content expected_of_other = ContentOf(other);
  ASSERT_EQ(expected.count("nat/KUBE-POSTROUTING"), row.labels ? 0U : 1U);
  ASSERT_EQ(expected.count("nat/KUBELET-POSTROUTING"), row.labels ? 1U : 0U);
  row.damage.leaves(expected);

  if (row.damage.asleep) daemon().Signal(SIGSTOP);
  row.damage.strike(iptables);
  if (row.damage.asleep) daemon().Signal(SIGCONT);
  ASSERT_TRUE(daemon().Prints(kIncident)) << daemon().Output();
  EXPECT_EQ(ContentOf(iptables), expected);
  EXPECT_EQ(ContentOf(other), expected_of_other);

  ExpectCounted(static_cast<double>(row.damage.items.size()));
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  const std::string incident = absl::StrReplaceAll(TheIncident(), {{R"(\")", "\""}});
  for (const std::string& item : row.damage.items) {
    EXPECT_THAT(incident, HasSubstr(absl::StrCat(FamilyNameOf(row.family), " ", item)));
  }
  // Only the kernel's events name the writer.
  const bool named = row.mode == IptablesMode::kNft;
  EXPECT_THAT(incident,
              HasSubstr(named ? CommandOf(row) + " (PID " : "by a process that was not seen"));
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& row) {
  return absl::StrCat(row.param.damage.name, TestNameOf(row.param.mode),
                      row.param.family == IpFamily::kIpv4 ? "Ip" : "Ip6");
}
INSTANTIATE_TEST_SUITE_P(Damage, EachDamageTest,
                         ::testing::ValuesIn(Cases(EveryDamage(), /*labels=*/false)), NameOfCase);
INSTANTIATE_TEST_SUITE_P(DamageToLabels, EachDamageTest,
                         ::testing::ValuesIn(Cases(EveryDamageToLabels(), /*labels=*/true)),
                         NameOfCase);

// The kernel shows a timer's period, and only its events name the writer.
TEST_F(DaemonDamageTest, PollingAsksTenTimesASecondAndRepairs) {
  Start(Settings(IptablesMode::kNft), {"--watch=poll"});
  std::string timers;
  for (const auto& file :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", daemon().pid(), "/fdinfo"))) {
    timers += FileText(file.path());
  }
  EXPECT_EQ(CountOf("it_interval: (0, 100000000)", timers), 1) << timers;
  Output({"iptables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT"});
  ASSERT_TRUE(daemon().Prints(kIncident)) << daemon().Output();
  EXPECT_THAT(daemon().Output(), HasSubstr("by a process that was not seen"));
}

TEST_F(DaemonDamageTest, AFlushOfTheWholeRulesetIsOneIncident) {
  Load(IptablesMode::kNft, kForeignRules);
  Start(Settings(IptablesMode::kNft));
  std::map<IpFamily, Content> expected;
  for (const IpFamily family : kBothFamilies) {
    expected[family] = ContentOf({.family = family});
    for (const char* table : kIptablesTables) LoseForeignChains(expected[family], table);
  }
  Output({"nft", "flush", "ruleset"});
  ASSERT_TRUE(daemon().Prints(kIncident)) << daemon().Output();
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(ContentOf({.family = family}), expected[family]);
  }
  ExpectCounted(22);
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  const std::string incident = TheIncident();
  EXPECT_THAT(incident, HasSubstr("by nft (PID "));
  EXPECT_THAT(incident, HasSubstr(R"(mangle chain_missing ":KUBE-IPTABLES-HINT")"));
}

class EitherModeDamageTest : public DaemonDamageTest,
                             public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
  static void Do(IpFamily family, const std::vector<std::string>& arguments) {
    Runs(arguments)(Of(family));
  }
  void Start() { DaemonTest::Start(Settings(GetParam())); }
};

TEST_P(EitherModeDamageTest, OthersJumpsOfTheSameFlushAreNamed) {
  Load(GetParam(),
       "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n-A PREROUTING -j CNI-HOSTPORT-DNAT\nCOMMIT\n"
       "*filter\n:cali-INPUT - [0:0]\n-A INPUT -j cali-INPUT\nCOMMIT\n");
  Start();
  Do(IpFamily::kIpv4, {"-t", "nat", "-F"});
  ASSERT_TRUE(daemon().Prints(kIncident, 1)) << daemon().Output();
  EXPECT_THAT(
      daemon().Output(),
      HasSubstr("removed with it, and missing until their owners "
                "restore them: ip nat PREROUTING -> CNI-HOSTPORT-DNAT (the CNI plugin portmap)\n"));
  Do(IpFamily::kIpv6, {"-F"});
  ASSERT_TRUE(daemon().Prints(kIncident, 2)) << daemon().Output();
  EXPECT_THAT(daemon().Output(),
              HasSubstr("restore them: ip6 filter INPUT -> cali-INPUT (Calico)\n"));
  EXPECT_EQ(ContentOf(Of(IpFamily::kIpv4)).count("nat/PREROUTING"), 0U) << "not ours to repair";
}

TEST_P(EitherModeDamageTest, ALostJumpOfKubeProxyIsLoggedThoughNothingOfOursIsDamaged) {
  Load(GetParam(),
       "*mangle\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n"
       "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n");
  Start();
  Do(IpFamily::kIpv4, {"-t", "nat", "-D", "PREROUTING", "-j", "KUBE-SERVICES"});
  const std::string writer = GetParam() == IptablesMode::kNft ? "iptables-nft (PID " : "a process ";
  ASSERT_TRUE(daemon().Prints("Jumps of kube-proxy were deleted by " + writer))
      << daemon().Output();
  EXPECT_THAT(daemon().Output(), HasSubstr("ip nat PREROUTING -> KUBE-SERVICES (kube-proxy)"));
  EXPECT_THAT(
      Agent({"audit", "--iptables-mode=" + std::string(NameOf(GetParam()))}).out,
      AllOf(HasSubstr("error   KubeProxyJumpLost"), HasSubstr("PREROUTING to nat/KUBE-SERVICES")));
}

TEST_P(EitherModeDamageTest, TheWriterOfARuleInOrBeforeOursIsNamed) {
  Start();
  const std::string writer = GetParam() == IptablesMode::kNft ? "iptables-nft (PID " : "a process ";
  for (const auto& [chain, target, finding] :
       {std::array{"KUBE-FIREWALL", "DROP", "ForeignDropsEverything"},
        std::array{"INPUT", "ACCEPT", "ShadowedJump"}}) {
    Do(IpFamily::kIpv4, {"-I", chain, "-j", target});
    ASSERT_TRUE(daemon().Prints(finding)) << daemon().Output();
    const std::string log = daemon().Output();
    const std::string first = log.substr(log.find(finding));
    EXPECT_THAT(first.substr(0, first.find('\n')), HasSubstr("; written by " + writer));
    Do(IpFamily::kIpv4, {"-D", chain, "-j", target});
    // Not before: the endpoints were dropped, too.
    const std::string statusz = HttpGet(kMetricsPort, "/statusz").body;
    const std::string kept =
        statusz.substr(std::min(statusz.find(absl::StrCat(finding, ": ")), statusz.size()));
    EXPECT_THAT(kept.substr(0, kept.find('\n')), HasSubstr("; written by " + writer)) << statusz;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, EitherModeDamageTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
