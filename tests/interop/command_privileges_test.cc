// SPDX-License-Identifier: Apache-2.0
//
// What the commands that only read, and the programs that the daemon runs, could do if they were
// taken over. A command is judged when it has read everything and writes its answer, which nobody
// takes yet.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <ostream>

#include "agent/process/own_process.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/child.h"

namespace kipt::testing {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAdmin = uint64_t{1} << CAP_NET_ADMIN;
constexpr uint64_t kRaw = uint64_t{1} << CAP_NET_RAW;

// A command whose standard output is full.
class StuckCommand {
 public:
  explicit StuckCommand(std::vector<std::string> argv) {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
    const std::string page(4096, 'x');
    ssize_t size = 0;
    while ((size = write(ends_[1], page.data(), page.size())) > 0) filled_ += size;
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);
    std::vector<char*> words;
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ == 0) {
      DieWithParent(parent);
      dup2(ends_[1], STDOUT_FILENO);
      execv(words[0], words.data());
      _exit(127);
    }
    close(ends_[1]);
  }
  ~StuckCommand() {
    close(ends_[0]);
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  StuckCommand(const StuckCommand&) = delete;
  StuckCommand& operator=(const StuckCommand&) = delete;

  bool Writes() const {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      std::string where;
      std::getline(std::ifstream(absl::StrCat("/proc/", child_, "/wchan")), where);
      if (absl::StrContains(where, "pipe_write")) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
  // As in proc_pid_status(5).
  std::string Status(const std::string& key) const {
    std::ifstream file(absl::StrCat("/proc/", child_, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (absl::StartsWith(line, key + ":\t")) return line.substr(key.size() + 2);
    }
    return "";
  }
  // Takes the answer and waits for the end.
  int Finish(std::string& answer) {
    std::array<char, 4096> buffer{};
    ssize_t size = 0;
    while ((size = read(ends_[0], buffer.data(), buffer.size())) > 0) {
      answer.append(buffer.data(), static_cast<size_t>(size));
    }
    answer.erase(0, static_cast<size_t>(filled_));
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = fork();
    if (child_ == 0) _exit(0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  ssize_t filled_ = 0;
  pid_t child_ = -1;
};

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
  std::vector<std::string> argv = {AgentProgram()};
  for (const std::string& word : GetParam().arguments) {
    argv.push_back(word == "FILE" ? "--from-file=" + rules.path() : word);
  }
  StuckCommand command(argv);
  ASSERT_TRUE(command.Writes());
  const std::string kept = absl::StrCat(absl::Hex(GetParam().kept, absl::kZeroPad16));
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"}) EXPECT_EQ(command.Status(set), kept);
  EXPECT_EQ(command.Status("NoNewPrivs"), "1");
  EXPECT_EQ(command.Status("Seccomp"), agent::kBuiltWithASanitizer ? "0" : "2");
  std::string answer;
  // An audit may have seen other namespaces' faults.
  EXPECT_THAT(command.Finish(answer), AnyOf(kExitOk, kExitDifferences)) << answer;
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
        Row{"StatusLegacy",
            {"status", "--iptables-mode=legacy"},
            kAdmin | kRaw,
            "KUBE-FIREWALL",
            IptablesMode::kLegacy},
        Row{"DetectLegacy", {"detect"}, kAdmin | kRaw, "legacy", IptablesMode::kLegacy},
        Row{"AuditLegacy", {"audit"}, kAdmin | kRaw, "for information", IptablesMode::kLegacy},
        Row{"ExplainLegacy",
            {"explain", "KUBE-FIREWALL"},
            kAdmin | kRaw,
            "KUBE-FIREWALL",
            IptablesMode::kLegacy}),
    [](const auto& row) { return row.param.name; });

// ---- the programs of iptables-legacy ----

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

TEST_F(ProgramPrivilegesTest, AreFewAtTheFirstLookToo) {
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
