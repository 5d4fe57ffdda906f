// SPDX-License-Identifier: Apache-2.0
//
// What a parent leaves behind in the programs that it starts: closed standard descriptors, ignored
// signals, a pipe that nobody reads.
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

class InheritedStateTest : public DaemonTest {
 protected:
  // The program, started by a shell with `redirections`.
  static std::vector<std::string> FromShell(const std::string& redirections,
                                            const std::string& arguments) {
    return {"/bin/sh", "-c", absl::StrCat("exec \"$0\" ", arguments, " ", redirections),
            AgentProgram()};
  }
  std::string TargetOf(int fd) {
    std::error_code error;
    return std::filesystem::read_symlink(absl::StrCat("/proc/", daemon().pid(), "/fd/", fd), error)
        .string();
  }
};

TEST_F(InheritedStateTest, ClosedStandardDescriptorsAreTakenByNothingElse) {
  for (const char* closed : {"0<&- 1>&- 2>&-", "0<&-", "1>&- 2>&-", "0<&- 2>&-"}) {
    StartProgram(FromShell(closed, "run"));
    ASSERT_TRUE(BecomesReady()) << closed;
    for (const int fd : {0, 1, 2}) {
      // "memfd:output" is this test's.
      EXPECT_THAT(TargetOf(fd), AnyOf("/dev/null", HasSubstr("memfd:output")))
          << closed << ", descriptor " << fd;
    }
    EXPECT_EQ(Stop(SIGTERM), kExitOk);
  }
}

TEST_F(InheritedStateTest, ASignalOfABrokenPipeDoesNotEndTheDaemon) {
  Start({});
  daemon().Signal(SIGPIPE);
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(daemon().Prints("is unchanged")) << daemon().Output();
  EXPECT_TRUE(IsReady());
}

// `run | head -1`: the reader of its log ends, the repairing goes on.
TEST_F(InheritedStateTest, ALogThatNobodyReadsAnyMoreDoesNotEndTheDaemon) {
  StartProgram({"/bin/sh", "-c",
                "exec 3>&1; setpriv --pdeathsig KILL \"$0\" run --v=2 2>&1 | head -1 >&3",
                AgentProgram()});
  ASSERT_TRUE(WaitUntil([] { return IsReady(); }));
  Output({"iptables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT"});
  EXPECT_TRUE(BecomesClean({}));
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
}

TEST_F(InheritedStateTest, OutputThatCannotBeWrittenIsAFailure) {
  for (const char* where : {">/dev/full", ">&-"}) {
    for (const char* command : {"gates", "plan", "detect", "explain filter/INPUT", "version",
                                "--help", "completion bash", "sync --output=json"}) {
      const ProgramResult result = RunProgram(FromShell(where, command));
      EXPECT_EQ(result.exit_code, kExitFailed) << command << where << result;
      EXPECT_THAT(result.err, HasSubstr("Error: ")) << command << where;
    }
  }
}

TEST_F(InheritedStateTest, AClosedPipeEndsACommandQuietlyAndNotWithASignal) {
  const ProgramResult result =
      RunProgram({"/bin/bash", "-c",
                  "{ sleep 0.3; \"$0\" gates; echo \"ended with $?\" >&2; } | :", AgentProgram()});
  EXPECT_EQ(result.err, "ended with 0\n");
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
