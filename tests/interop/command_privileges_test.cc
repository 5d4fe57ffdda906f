// SPDX-License-Identifier: Apache-2.0
//
// What the commands that only read, and the programs that the daemon runs, could do if they were
// taken over. A command is checked when it has read everything and blocks on writing its answer.
#include <linux/capability.h>

#include <cstdint>
#include <ostream>

#include "agent/process/own_process.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

constexpr uint64_t kAdmin = uint64_t{1} << CAP_NET_ADMIN;
constexpr uint64_t kRaw = uint64_t{1} << CAP_NET_RAW;

struct Row {
  std::string name;
  std::vector<std::string> arguments;
  uint64_t kept = 0;
  // What the answer contains: it was not refused what it needs.
  std::string answer;
  IptablesMode mode = IptablesMode::kNft;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class CommandPrivilegesTest : public AgentTest, public ::testing::WithParamInterface<Row> {};

TEST_P(CommandPrivilegesTest, AreFewWhenItHasReadEverything) {
  Sync({.iptables = GetParam().mode});
  const TemporaryFile rules("*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n");
  Words argv = {AgentProgram()};
  for (const std::string& word : GetParam().arguments) {
    argv.push_back(word == "FILE" ? "--from-file=" + rules.path() : word);
  }
  FullPipe pipe;
  BackgroundProgram command(Words{"/bin/bash", "-c", "exec \"$@\" >\"$0\"", pipe.path()} + argv);
  const std::string proc = absl::StrCat("/proc/", command.pid(), "/");
  ASSERT_TRUE(WaitUntil([&] { return absl::StrContains(FileText(proc + "wchan"), "pipe_write"); }));
  const std::string status = FileText(proc + "status");
  const std::string kept = absl::StrCat(absl::Hex(GetParam().kept, absl::kZeroPad16));
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"}) {
    EXPECT_THAT(status, HasSubstr(absl::StrCat("\n", set, ":\t", kept, "\n")));
  }
  EXPECT_THAT(status, HasSubstr("\nNoNewPrivs:\t1\n"));
  EXPECT_THAT(status,
              HasSubstr(agent::kBuiltWithASanitizer ? "\nSeccomp:\t0\n" : "\nSeccomp:\t2\n"));
  EXPECT_TRUE(WaitUntil([&] {
    pipe.Read();
    return !command.Running();
  }));
  const std::string answer = pipe.Read();
  // An audit may have seen other namespaces' faults.
  EXPECT_THAT(command.Wait(), AnyOf(kExitOk, kExitDifferences)) << answer;
  EXPECT_THAT(answer, HasSubstr(GetParam().answer));
  // The words of the filter.
  EXPECT_THAT(answer, Not(HasSubstr("Operation not permitted")));
}

INSTANTIATE_TEST_SUITE_P(
    Commands, CommandPrivilegesTest,
    ::testing::Values(
        Row{"Gates", {"gates"}, 0, "IPTablesOwnershipCleanup"},
        Row{"Capabilities", {"detect", "--capabilities=kubelet"}, 0, "kubelet: present"},
        Row{"FromFile", {"explain", "KUBE-FIREWALL", "FILE"}, 0, "KUBE-FIREWALL"},
        Row{"Status", {"status", "--iptables-mode=nft"}, kAdmin, "KUBE-FIREWALL"},
        Row{"Plan", {"plan", "--iptables-mode=nft"}, kAdmin, "0 to add"},
        Row{"PlanOfAnyMode", {"plan"}, kAdmin | kRaw, "0 to add"},
        Row{"Retire", {"retire", "--iptables-mode=nft"}, kAdmin, "0 to remove"},
        Row{"Detect", {"detect"}, kAdmin, "nft"},
        Row{"Audit", {"audit"}, kAdmin, "for information"},
        Row{"AuditEverywhere", {"audit", "--all-netns"}, 0, "for information"},
        Row{"Explain", {"explain", "KUBE-FIREWALL"}, kAdmin, "KUBE-FIREWALL"},
        Row{"StatusLegacy", List("status", "--iptables-mode=legacy"), kAdmin | kRaw,
            "KUBE-FIREWALL", IptablesMode::kLegacy},
        Row{"DetectLegacy", {"detect"}, kAdmin | kRaw, "legacy", IptablesMode::kLegacy},
        Row{"AuditLegacy", {"audit"}, kAdmin | kRaw, "for information", IptablesMode::kLegacy},
        Row{"ExplainLegacy", List("explain", "KUBE-FIREWALL"), kAdmin | kRaw, "KUBE-FIREWALL",
            IptablesMode::kLegacy}),
    [](const auto& row) { return row.param.name; });

class ProgramPrivilegesTest : public DaemonTest {
 protected:
  const TemporaryTree& tree() const { return tree_; }

 private:
  TemporaryTree tree_;
};

TEST_F(ProgramPrivilegesTest, DoNotReachFiles) {
  const auto wrapper =
      PutBeforeLegacyPrograms(tree(), "[ -e $dir/armed ] && echo gone 2>/dev/null >$dir/precious");
  tree().Write("precious", "precious");
  Start({.iptables = IptablesMode::kLegacy}, {"--iptables-sync-period=1s"});
  tree().Write("armed", "");
  const double before = Metric("kube_iptables_agent_syncs_total");
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_syncs_total", before + 2)) << daemon().Output();
  EXPECT_TRUE(IsReady()) << Readyz();
  EXPECT_EQ(FileText(tree().Path("precious")), agent::kBuiltWithASanitizer ? "gone\n" : "precious");
}

TEST_F(ProgramPrivilegesTest, AreFewAtTheFirstCheck) {
  const auto wrapper =
      PutBeforeLegacyPrograms(tree(), "grep CapEff /proc/self/status 2>/dev/null >>$dir/caps");
  Start({.iptables = IptablesMode::kLegacy});
  constexpr uint64_t kMost = kAdmin | kRaw | uint64_t{1} << CAP_SETPCAP |
                             uint64_t{1} << CAP_SYS_PTRACE | uint64_t{1} << CAP_SYS_MODULE;
  std::ifstream file(tree().Path("caps"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(std::stoull(line.substr(line.find('\t') + 1), nullptr, 16) & ~kMost, 0) << line;
}

}  // namespace
}  // namespace kipt::testing
