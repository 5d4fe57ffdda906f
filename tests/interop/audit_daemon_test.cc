// SPDX-License-Identifier: Apache-2.0
//
// The daemon's own audits: what they find and show.
#include <sys/stat.h>
#include <sys/utsname.h>

#include <nlohmann/json.hpp>

#include "tests/interop/daemon_fixture.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

constexpr char kDone[] = "kube_iptables_agent_audits_total";
constexpr char kFindings[] = "kube_iptables_agent_audit_findings";
constexpr char kWarm[] = "result=\"done\"";

class AuditDaemonTest : public DaemonTest {
 protected:
  // Without lists of modules each audit would read the kernel's symbols, which takes most of its
  // processor time, and so the next one would come much later.
  AuditDaemonTest() {
    utsname kernel = {};
    uname(&kernel);
    host_.Write(absl::StrCat("lib/modules/", kernel.release, "/modules.builtin"),
                "kernel/nft_compat.ko\nkernel/xt_comment.ko\nkernel/xt_conntrack.ko\n"
                "kernel/xt_mark.ko\nkernel/xt_nat.ko\n");
    host_.Write("10-net.conf", "{}");
  }
  // Of what audits this host, with no CNI configurations of this machine.
  Words HostFlags() const {
    return {"--cni-conf-dir=" + host_.root(), "--host-root=" + host_.root()};
  }
  void StartAuditing(const std::string& period) {
    Start({}, HostFlags() + Words{"--audit-period=" + period});
  }

  // An audit that began after this call has ended: the first might have begun before.
  bool AuditsAgain() { return MetricReaches(kDone, Metric(kDone, kWarm) + 2, kWarm); }
  static std::string Auditz(const std::string& query = "") {
    return HttpGet(kMetricsPort, "/auditz" + query).body;
  }

  const TemporaryTree host_;
};

TEST_F(AuditDaemonTest, ReportsChangesInMetricEndpointAndLog) {
  StartAuditing("1s");
  ASSERT_TRUE(AuditsAgain()) << daemon().Output();
  EXPECT_EQ(Metric(kFindings, "kind=\"ChainUser\""), 0);
  ASSERT_EQ(Iptables{}.Run({"-t", "nat", "-N", "KUBE-MARK-MASQ"}).exit_code, 0);
  ASSERT_EQ(Iptables{}.Run({"-t", "nat", "-N", "OFFICE"}).exit_code, 0);
  ASSERT_EQ(Iptables{}
                .Run({"-t", "nat", "-A", "OFFICE", "-s", "192.0.2.7", "-j", "KUBE-MARK-MASQ"})
                .exit_code,
            0);
  ASSERT_TRUE(MetricReaches(kFindings, 2, "kind=\"ChainUser\"")) << Auditz();
  EXPECT_EQ(Metric(kFindings,
                   "{backend=\"nft\",chain=\"KUBE-MARK-MASQ\",change=\"ownership-cleanup\",family="
                   "\"ip\",kind=\"ChainUser\",owner=\"unknown\",severity=\"error\",table=\"nat\"}"),
            1);
  // The words of the command.
  const ProgramResult command = Agent(Words{"audit"} + HostFlags());
  EXPECT_THAT(Auditz(), AllOf(HasSubstr("\nBefore ownership-cleanup:\n\n" + command.out),
                              HasSubstr("-A OFFICE -s 192.0.2.7/32 -j KUBE-MARK-MASQ")));
  const auto json = nlohmann::json::parse(Auditz("?output=json"));
  EXPECT_EQ(json["audits"].size(), 4U);
  EXPECT_GE(json["audits"][0]["errors"], 1);
  ASSERT_TRUE(AuditsAgain());
  const std::string line =
      "Finding: error ChainUser nft ip nat/KUBE-MARK-MASQ, before ownership-cleanup, "
      "kube-proxy-nftables: rules in OFFICE";
  EXPECT_EQ(CountOf(line, daemon().Output()), 1) << daemon().Output();
  ASSERT_EQ(Iptables{}.Run({"-t", "nat", "-F", "OFFICE"}).exit_code, 0);
  ASSERT_TRUE(AuditsAgain());
  EXPECT_EQ(Metric(kFindings, "kind=\"ChainUser\""), 0);
  EXPECT_EQ(CountOf("Finding gone: error ChainUser nft ip nat/KUBE-MARK-MASQ", daemon().Output()),
            1)
      << daemon().Output();
}

TEST_F(AuditDaemonTest, AReloadChangesThePeriodAndZeroSwitchesItOff) {
  const TemporaryTree files;
  const std::string head = kConfigHead;
  files.Write("config.yaml", head + "auditPeriod: 1h\n");
  Start({}, HostFlags() + Words{"--config=" + files.Path("config.yaml")});
  EXPECT_EQ(Metric("kube_iptables_agent_audit_period_seconds"), 3600);
  EXPECT_THAT(Auditz(), HasSubstr("none has ended yet"));
  files.Write("config.yaml", head + "auditPeriod: 1s\n");
  ASSERT_TRUE(MetricReaches(kDone, 2, kWarm)) << daemon().Output();
  EXPECT_GT(Metric("kube_iptables_agent_audit_last_success_timestamp_seconds"), 0);
  files.Write("config.yaml", head + "auditPeriod: 0s\n");
  EXPECT_TRUE(WaitUntil([] { return absl::StrContains(Auditz(), "Off: --audit-period is 0"); }));
  EXPECT_EQ(Metric("kube_iptables_agent_audit_last_success_timestamp_seconds"), 0);
  EXPECT_EQ(Stop(SIGTERM), 0);
}

TEST_F(AuditDaemonTest, StartedWithoutAuditsItMustRestartToHaveThem) {
  const TemporaryTree files;
  const std::string head = kConfigHead;
  files.Write("config.yaml", head + "auditPeriod: 0s\n");
  Start({}, {"--config=" + files.Path("config.yaml")});
  files.Write("config.yaml", head + "auditPeriod: 1s\n");
  EXPECT_EQ(daemon().Wait(), 1);
  EXPECT_THAT(daemon().Output(), HasSubstr("audit-period: 0s at start"));
}

TEST_F(AuditDaemonTest, AWriterWithoutAPauseTearsAuditsQuietlyAndRepairsGoOn) {
  StartAuditing("1s");
  // Its nft ends with it, when the pipe does.
  BackgroundProgram writer({"/bin/bash", "-c",
                            "nft add table ip busy; while :; do echo 'add chain ip busy c; delete "
                            "chain ip busy c'; done > >(exec nft -i >/dev/null)"});
  // An audit of a few chains may end between two commits, so there are many.
  std::string flood = "add table ip flood; ";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&flood, "add chain ip flood c", i, "; ");
  Output({"nft", flood});
  EXPECT_TRUE(MetricReaches(kDone, 1, "result=\"torn\"")) << daemon().Output();
  ASSERT_EQ(Iptables{}.Run({"-t", "mangle", "-F"}).exit_code, 0);
  ASSERT_EQ(Iptables{}.Run({"-t", "mangle", "-X"}).exit_code, 0);
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_drift_detected_total", 1)) << daemon().Output();
  // Findings of an audit before the first of these commits are logged.
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("kept changing")));
  writer.Signal(SIGKILL);
}

TEST_F(AuditDaemonTest, AFloodOfForeignChainsTakesNoMemory) {
  std::string flood = "add table ip flood\n";
  for (int i = 0; i < 100000; ++i) {
    absl::StrAppend(&flood, "add chain ip flood a-name-of-usual-length-", i, "\n");
  }
  const TemporaryTree files;
  files.Write("flood", flood);
  ASSERT_EQ(RunProgram({"nft", "-f", files.Path("flood")}).exit_code, 0);
  StartAuditing("1s");
  int64_t peak = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(90);
  while (Metric(kDone, kWarm) < 1 && absl::Now() < deadline) {
    peak = std::max<int64_t>(peak, MemoryOf(daemon().pid()).anonymous_kib);
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GE(Metric(kDone, kWarm), 1) << daemon().Output();
  RecordProperty("peak_kib", static_cast<int>(peak));
  EXPECT_LT(peak, 8 * 1024);
}

TEST_F(AuditDaemonTest, ItReadsAsTheDaemonMay) {
  // Another user's file that only that user may read.
  host_.Write("10.conflist", "{\"name\": \"a\", \"plugins\": []}");
  ASSERT_EQ(chown(host_.Path("10.conflist").c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(host_.Path("10.conflist").c_str(), 0600), 0);
  StartAuditing("1s");
  EXPECT_TRUE(MetricReaches(kFindings, 1, "kind=\"CniConfigUnreadable\"")) << Auditz();
  // Routing rules, WireGuard and tc are read.
  EXPECT_THAT(Auditz(), Not(HasSubstr("NotSeen"))) << Auditz();
}

}  // namespace
}  // namespace kipt::testing
