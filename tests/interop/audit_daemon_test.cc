// SPDX-License-Identifier: Apache-2.0
//
// The daemon's own audits: what they find and show, and that they cost no repair any time.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "netlink/transaction.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/figures.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/process_cost.h"
#include "tests/support/service_rules.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

constexpr char kDone[] = "kube_iptables_agent_audits_total";
constexpr char kFindings[] = "kube_iptables_agent_audit_findings";
constexpr char kWarm[] = "result=\"done\"";

// The host that is audited: no CNI configurations of this machine, and lists of the kernel's
// modules.
class AuditedHost {
 public:
  // Without lists of modules each audit would read the kernel's symbols, which takes most of its
  // processor time, and so the next one would come much later.
  AuditedHost() {
    utsname kernel = {};
    uname(&kernel);
    files_.Write(absl::StrCat("lib/modules/", kernel.release, "/modules.builtin"),
                 "kernel/nft_compat.ko\nkernel/xt_comment.ko\nkernel/xt_conntrack.ko\n"
                 "kernel/xt_mark.ko\nkernel/xt_nat.ko\n");
  }

  // Of a daemon that audits this host so often.
  std::vector<std::string> Flags(const std::string& period) const {
    return {"--audit-period=" + period, "--cni-conf-dir=" + files_.root(),
            "--host-root=" + files_.root()};
  }
  const TemporaryTree& files() const { return files_; }

 private:
  const TemporaryTree files_;
};

class AuditDaemonTest : public DaemonTest {
 protected:
  void StartAuditing(const std::string& period) { Start({}, host_.Flags(period)); }

  // Audits that begin from now on have ended.
  bool AuditsAgain(int audits = 2) {
    return MetricReaches(kDone, Metric(kDone, kWarm) + audits, kWarm);
  }
  static std::string Auditz(const std::string& query = "") {
    return HttpGet(kMetricsPort, "/auditz" + query).body;
  }
  static void Nft(const std::string& commands) {
    const ProgramResult result = RunProgram({"nft", commands});
    ASSERT_EQ(result.exit_code, 0) << result;
  }

  const AuditedHost host_;
  const TemporaryTree& no_cni_ = host_.files();
};

TEST_F(AuditDaemonTest, TellsWhatComesAndGoesInMetricEndpointAndLog) {
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
  const ProgramResult command =
      RunProgram({AgentProgramPath(), "audit", "--cni-conf-dir=" + no_cni_.root(),
                  "--host-root=" + no_cni_.root()});
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

TEST_F(AuditDaemonTest, AWriterWithoutAPauseTearsAuditsQuietlyAndRepairsGoOn) {
  StartAuditing("1s");
  // Its nft ends with it, when the pipe does.
  BackgroundProgram writer({"/bin/bash", "-c",
                            "nft add table ip busy; while :; do echo 'add chain ip busy c; delete "
                            "chain ip busy c'; done > >(exec nft -i >/dev/null)"});
  // An audit of a few chains may end between two commits, so there are many.
  std::string flood = "add table ip flood; ";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&flood, "add chain ip flood c", i, "; ");
  ASSERT_NO_FATAL_FAILURE(Nft(flood));
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

TEST_F(AuditDaemonTest, AReloadChangesThePeriodAndZeroSwitchesItOff) {
  const TemporaryTree files;
  const std::string head = kConfigHead;
  files.Write("config.yaml", head + "auditPeriod: 1h\n");
  Start({}, {"--config=" + files.Path("config.yaml"), "--cni-conf-dir=" + no_cni_.root(),
             "--host-root=" + no_cni_.root()});
  EXPECT_EQ(Metric("kube_iptables_agent_audit_period_seconds"), 3600);
  EXPECT_THAT(Auditz(), HasSubstr("none has ended yet"));
  files.Write("config.yaml", head + "auditPeriod: 1s\n");
  ASSERT_TRUE(MetricReaches(kDone, 2, kWarm)) << daemon().Output();
  EXPECT_GT(Metric("kube_iptables_agent_audit_last_success_timestamp_seconds"), 0);
  files.Write("config.yaml", head + "auditPeriod: 0s\n");
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!absl::StrContains(Auditz(), "Off: --audit-period is 0") && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(Auditz(), HasSubstr("Off: --audit-period is 0"));
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

TEST_F(AuditDaemonTest, ItReadsAsTheDaemonMay) {
  // Another user's file that only that user may read.
  no_cni_.Write("10.conflist", "{\"name\": \"a\", \"plugins\": []}");
  ASSERT_EQ(chown(no_cni_.Path("10.conflist").c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(no_cni_.Path("10.conflist").c_str(), 0600), 0);
  StartAuditing("1s");
  EXPECT_TRUE(MetricReaches(kFindings, 1, "kind=\"CniConfigUnreadable\"")) << Auditz();
  // Routing rules, WireGuard and tc are read.
  EXPECT_THAT(Auditz(), Not(HasSubstr("NotSeen"))) << Auditz();
}

// Damage and repairs while an audit reads all rules: no repair is later for it, and audits end.

// The same chain is damaged again when the second is over within which that would be a fight.
constexpr absl::Duration kRest = absl::Milliseconds(1100);
constexpr char kEnded[] = "kube_iptables_agent_audits_total";
// The daemon's comm: 15 characters of its name.
constexpr char kDaemonComm[] = "kube-iptables-a";

class AuditStormTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    auto writer = ForeignWriter::Create();
    ASSERT_THAT(writer, IsOk());
    writer_ = *std::move(writer);
  }

  // With the canaries, because nothing jumps to them: one operation takes one of them away.
  void StartAuditing(const std::string& period) {
    std::vector<std::string> flags = host_.Flags(period);
    flags.emplace_back("--iptables-sync-period=1h");
    Start({.ownership_cleanup = false}, flags);
    auto listener = GenerationListener::Create();
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
  }

  // Takes away the chain that was damaged longest ago. From before that commit to the repair's.
  absl::StatusOr<absl::Duration> DamageUntilRepaired() {
    absl::SleepFor(damaged_[next_] + kRest - absl::Now());
    if (const auto before = listener_->Drain(); !before.ok()) return before.status();
    const absl::Time start = damaged_[next_] = absl::Now();
    const auto took = writer_->Commit({netlink::DeleteChain{kChains[next_]}});
    if (!took.ok()) return took.status();
    next_ = (next_ + 1) % kChains.size();
    while (absl::Now() < start + kPatience) {
      pollfd readable = {.fd = listener_->fd(), .events = POLLIN, .revents = 0};
      poll(&readable, 1, 100);
      const absl::Time now = absl::Now();
      const auto changes = listener_->Drain();
      if (!changes.ok()) return changes.status();
      for (const GenerationChange& change : *changes) {
        if (change.process == kDaemonComm) return now - start;
      }
    }
    return absl::DeadlineExceededError("a chain was not repaired:\n" + daemon().Output());
  }

  size_t Threads() { return ThreadCosts(daemon().pid()).size(); }

  static double Ended() { return Metric(kEnded); }
  static double Done() { return Metric(kEnded, "result=\"done\""); }

 private:
  static inline const std::array<ChainId, 8> kChains = {
      {{Family::kIPv4, Table::kMangle, "KUBE-IPTABLES-HINT"},
       {Family::kIPv4, Table::kMangle, "KUBE-KUBELET-CANARY"},
       {Family::kIPv4, Table::kNat, "KUBE-KUBELET-CANARY"},
       {Family::kIPv4, Table::kFilter, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kMangle, "KUBE-IPTABLES-HINT"},
       {Family::kIPv6, Table::kMangle, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kNat, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kFilter, "KUBE-KUBELET-CANARY"}}};

  const AuditedHost host_;
  std::unique_ptr<ForeignWriter> writer_;
  std::unique_ptr<GenerationListener> listener_;
  std::array<absl::Time, 8> damaged_ = {};
  size_t next_ = 0;
};

TEST_F(AuditStormTest, AuditsEndWhileDamageAndRepairsGoOn) {
  ASSERT_NO_FATAL_FAILURE(StartAuditing("1s"));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  int repairs = 0;
  while ((Done() < 3 || repairs < 20) && absl::Now() < deadline) {
    ASSERT_THAT(DamageUntilRepaired(), IsOk());
    ++repairs;
  }
  EXPECT_GE(Done(), 3) << daemon().Output();
  EXPECT_EQ(Metric("kube_iptables_agent_drift_detected_total"), repairs);
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output()), 0);
}

class AuditStormTimeTest : public AuditStormTest {};

// In turns, so that a slow minute of the machine is everybody's.
TEST_F(AuditStormTimeTest, NoRepairIsLaterBecauseAnAuditReadsAHundredThousandRules) {
  ASSERT_THAT(LoadServices(IptablesMode::kNft, 5000), IsOk());
  Figures without;
  Figures with;
  double ended = 0;
  for (int turn = 0; turn < 10; ++turn) {
    ASSERT_NO_FATAL_FAILURE(StartAuditing("1h"));
    for (int i = 0; i < 6; ++i) {
      const auto took = DamageUntilRepaired();
      ASSERT_THAT(took, IsOk());
      without.Add(*took);
    }
    const size_t at_rest = Threads();
    ASSERT_NO_FATAL_FAILURE(StartAuditing("1s"));
    ASSERT_TRUE(WaitUntil([&] { return Threads() > at_rest; })) << "no audit begins";
    for (int i = 0; i < 12; ++i) {
      const auto took = DamageUntilRepaired();
      ASSERT_THAT(took, IsOk());
      // Only the one audit since the start: the next begins much later.
      if (Threads() == at_rest) break;
      with.Add(*took);
    }
    ASSERT_TRUE(MetricReaches(kEnded, 1)) << daemon().Output();
    ended += Ended();
  }
  EXPECT_EQ(ended, 10) << "each audit has ended";
  ASSERT_GE(with.count(), 20U);
  std::cout << "damage to repaired in ms, " << without.count() << " without an audit: median "
            << InMilliseconds(without.Median()) << ", p90 " << InMilliseconds(without.Quantile(0.9))
            << "; " << with.count() << " during one: median " << InMilliseconds(with.Median())
            << ", p90 " << InMilliseconds(with.Quantile(0.9)) << "\n";
  EXPECT_LE(with.Median(), without.Median() + absl::Milliseconds(1));
  EXPECT_LE(with.Quantile(0.9), without.Quantile(0.9) + absl::Milliseconds(5));
}

}  // namespace
}  // namespace kipt::testing
