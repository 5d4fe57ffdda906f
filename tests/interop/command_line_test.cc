// SPDX-License-Identifier: Apache-2.0
//
// What each command prints, how it ends, and where it works.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_join.h"
#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {
namespace {

using CommandLineTest = AgentTest;

// A script that reads an empty plan would take it for nothing to do.
TEST_F(CommandLineTest, AReportThatCannotBeWrittenIsAFailure) {
  const std::vector<std::vector<std::string>> calls = {{"gates"},
                                                       {"gates", "--output=json"},
                                                       {"version"},
                                                       {"completion", "bash"},
                                                       {"--help"},
                                                       {"detect"},
                                                       {"plan", "--output=json"},
                                                       {"sync"},
                                                       {"plan"},
                                                       {"status"},
                                                       {"retire"},
                                                       {"audit", "--output=dot"},
                                                       {"explain", "filter/KUBE-FIREWALL"}};
  for (const std::vector<std::string>& call : calls) {
    Words argv = Words{"sh", "-c", "", AgentProgram()} + call;
    for (const char* const where : {">/dev/full", ">&-"}) {
      argv[2] = absl::StrCat("exec \"$0\" \"$@\" ", where);
      const ProgramResult result = RunProgram(argv);
      EXPECT_EQ(result.exit_code, kExitFailed) << call.front() << where << result;
      EXPECT_THAT(result.err, HasSubstr("Error: writing to standard output: "))
          << call.front() << where << result;
    }
    // A reader that has read enough is no failure.
    argv[0] = "bash";
    argv[2] =
        "set -o pipefail; \"$0\" \"$@\" >/dev/null; a=$?; (sleep 0.1; \"$0\" \"$@\") | true; "
        "[ $? = $a ]";
    const ProgramResult ended = RunProgram(argv);
    EXPECT_EQ(ended.exit_code, kExitOk) << call.front() << ended;
    EXPECT_THAT(ended.err, Not(HasSubstr("Error"))) << call.front();
  }
  // What sync did stays done.
  ExpectNothingPlanned({});
}

TEST_F(CommandLineTest, NetnsWorksThereAndNotHere) {
  const Netns there = NewNetns();
  const std::string netns = absl::StrCat("--netns=", there.Path());
  EXPECT_EQ(Agent({"plan", netns}).exit_code, kExitDifferences);
  EXPECT_EQ(Agent({"explain", "nat/KUBE-MARK-MASQ", netns}).exit_code, kExitDifferences);
  EXPECT_EQ(Agent({"sync", netns}).exit_code, kExitOk);
  EXPECT_EQ(Agent({"plan", netns}).exit_code, kExitOk);
  EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
  const InNetns in(there);
  EXPECT_TRUE(SavedRules::Of({IpFamily::kIpv4}).HasChain("mangle", "KUBE-IPTABLES-HINT"));
}

TEST_F(CommandLineTest, DeprecatedFlagsAreNamedOnlyWhereTheyHaveNoEffect) {
  const auto is_named = [](const char* flag) {
    return absl::StrContains(
        Agent({"plan", flag, "--iptables-masquerade-bit=14"}).err,
        "Flag --iptables-masquerade-bit has been deprecated, This flag has no effect and will be "
        "removed in a future version.");
  };
  EXPECT_TRUE(is_named("--emulated-version=1.27"));
  EXPECT_FALSE(is_named("--feature-gates=IPTablesOwnershipCleanup=false"));
}

// What `argv` prints where its standard output is a terminal.
std::string OnTerminal(std::vector<std::string> argv) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, nullptr);
  if (child == 0) {
    execvp(words[0], words.data());
    _exit(127);
  }
  EXPECT_GT(child, 0);
  std::string out;
  char piece[4096];
  // EIO: the program has ended.
  for (ssize_t got = 0; (got = read(master, piece, sizeof(piece))) > 0;) {
    out.append(piece, static_cast<size_t>(got));
  }
  close(master);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 127) << out;
  return absl::StrReplaceAll(out, {{"\r\n", "\n"}});
}

struct Row {
  std::string name;
  bool terminal;
  std::vector<std::string> variables;
  std::vector<std::string> flags;
  bool colored;
};
const Row kRows[] = {
    {"auto colours on a terminal", true, {}, {}, true},
    {"auto does not in a pipe", false, {}, {"--color=auto"}, false},
    {"NO_COLOR switches it off", true, {"NO_COLOR=1"}, {}, false},
    {"an empty NO_COLOR does not", true, {"NO_COLOR="}, {}, true},
    {"a dumb terminal has no colours", true, {"TERM=dumb"}, {}, false},
    {"always colours in a pipe", false, {}, {"--color=always"}, true},
    {"always is absolute", true, {"NO_COLOR=1", "TERM=dumb"}, {"--color=always"}, true},
    {"never is absolute", true, {}, {"--color=never"}, false},
    {"JSON has no colours", true, {}, {"--color=always", "--output=json"}, false},
};

class ColorsTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Output({"iptables-nft", "-t", "nat", "-N", "KUBE-MARK-DROP"});
    Output({"iptables-nft", "-t", "nat", "-A", "PREROUTING", "-m", "comment", "--comment",
            "\x1b[31mred", "-j", "KUBE-MARK-DROP"});
  }

  static std::string Print(const Row& row, const std::vector<std::string>& command) {
    const Words argv = Words{"env", "-u", "NO_COLOR", "TERM=xterm"} + row.variables +
                       Words{AgentProgram()} + command + row.flags;
    return row.terminal ? OnTerminal(argv) : RunProgram(argv).out;
  }
};

TEST_F(ColorsTest, FollowTheFlagThenTheEnvironmentThenTheTerminal) {
  struct Colored {
    std::vector<std::string> command;
    std::string text;
  };
  for (const Colored& each :
       std::vector<Colored>{{{"plan"}, "\x1b[32m  + :KUBE-FIREWALL"},
                            {{"status"}, "\x1b[33mip: "},
                            {{"audit"}, "\x1b[31merror\x1b[0m "},
                            {{"explain", "nat/KUBE-MARK-DROP"}, "\x1b[1min short\x1b[0m\n"}}) {
    for (const Row& row : kRows) {
      SCOPED_TRACE(absl::StrCat(row.name, ": ", absl::StrJoin(each.command, " ")));
      const std::string out = Print(row, each.command);
      EXPECT_THAT(out, HasSubstr("KUBE-"));
      if (row.colored) {
        EXPECT_THAT(out, HasSubstr(each.text));
      } else {
        EXPECT_THAT(out, Not(HasSubstr("\x1b")));
      }
    }
  }
}

// What programs inherit from their parent: closed standard descriptors, ignored signals, a pipe
// without a reader.

class InheritedStateTest : public DaemonTest {
 protected:
  std::string TargetOf(int fd) {
    std::error_code error;
    return std::filesystem::read_symlink(absl::StrCat("/proc/", daemon().pid(), "/fd/", fd), error)
        .string();
  }
};

TEST_F(InheritedStateTest, ClosedStandardDescriptorsAreTakenByNothingElse) {
  for (const char* closed : {"0<&- 1>&- 2>&-", "0<&-", "1>&- 2>&-", "0<&- 2>&-"}) {
    StartProgram({"/bin/sh", "-c", absl::StrCat("exec \"$0\" run ", closed), AgentProgram()});
    ASSERT_TRUE(BecomesReady()) << closed;
    for (const int fd : {0, 1, 2}) {
      // "memfd:output" is this test's.
      EXPECT_THAT(TargetOf(fd), AnyOf("/dev/null", HasSubstr("memfd:output")))
          << closed << ", descriptor " << fd;
    }
    EXPECT_EQ(Stop(SIGTERM), kExitOk);
  }
}

// `run | head -1`: the log's reader ends, the daemon continues to repair.
TEST_F(InheritedStateTest, ALogWithoutAReaderDoesNotEndTheDaemon) {
  StartProgram({"/bin/sh", "-c",
                "exec 3>&1; setpriv --pdeathsig KILL \"$0\" run --v=2 2>&1 | head -1 >&3",
                AgentProgram()});
  ASSERT_TRUE(WaitUntil([] { return IsReady(); }));
  Output({"iptables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT"});
  EXPECT_TRUE(BecomesClean({}));
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
}

TEST_F(InheritedStateTest, LegacyIptablesWorksWhereTheParentIgnoresItsChildren) {
  const ProgramResult result =
      RunProgram({"env", "--ignore-signal=CHLD", AgentProgram(), "sync", "--iptables-mode=legacy"});
  EXPECT_EQ(result.exit_code, kExitOk) << result;
  StartProgram({"env", "--ignore-signal=CHLD", AgentProgram(), "run", "--iptables-mode=legacy"});
  EXPECT_TRUE(BecomesReady()) << daemon().Output();
}

}  // namespace
}  // namespace kipt::testing
