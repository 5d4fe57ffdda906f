// SPDX-License-Identifier: Apache-2.0
#include "agent/process/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing::command_test {
namespace {

using agent::CommandRequest;
using agent::CommandResult;

absl::StatusOr<CommandResult> RunCommand(const CommandRequest& request) {
  return agent::NewCommandRunner()->Run(request);
}

CommandRequest Shell(std::string script) {
  return CommandRequest{.program = "/bin/sh",
                        .arguments = {"-c", std::move(script)},
                        .environment = {"PATH=/usr/bin:/bin"}};
}

// No child of ours is left, neither running nor as a zombie.
void ExpectNoChildren() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

bool IsAlive(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string number;
  std::string name;
  std::string state;
  file >> number >> name >> state;
  return !state.empty() && state != "Z";
}

TEST(CommandTest, ReturnsTheTwoOutputsAndTheExitCode) {
  const std::pair<std::string, CommandResult> rows[] = {
      {"echo out; echo err >&2", {.exit_code = 0, .output = "out\n", .errors = "err\n"}},
      {"echo out; exit 4", {.exit_code = 4, .output = "out\n", .errors = ""}},
      {"exit 255", {.exit_code = 255, .output = "", .errors = ""}},
      {"kill -9 $$", {.exit_code = 128 + SIGKILL, .output = "", .errors = ""}},
      {"exec >&- 2>&-; sleep 0.05; exit 3", {.exit_code = 3, .output = "", .errors = ""}},
  };
  for (const auto& [script, expected] : rows) {
    EXPECT_THAT(RunCommand(Shell(script)), IsOkAndHolds(expected)) << script;
  }
  ExpectNoChildren();
}

TEST(CommandTest, PassesMegabytesBothWaysAtOnce) {
  std::string input;
  for (int i = 0; i < 400'000; ++i) input += "line " + std::to_string(i) + "\n";
  CommandRequest request{.program = "/bin/cat", .input = input};
  const absl::StatusOr<CommandResult> result = RunCommand(request);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_TRUE(result->output == input) << result->output.size() << " of " << input.size();
}

TEST(CommandTest, LivesThroughAProgramThatDoesNotReadItsInput) {
  CommandRequest request = Shell("exec <&-; echo done");
  request.input = std::string(8 << 20, 'x');
  EXPECT_THAT(RunCommand(request),
              IsOkAndHolds(CommandResult{.exit_code = 0, .output = "done\n", .errors = ""}));
}

TEST(CommandTest, RefusesWhatCannotBeExecuted) {
  const TemporaryTree tree;
  const std::string directory = tree.root();
  const std::string text_file = directory + "/not-executable";
  const std::string garbage = directory + "/garbage";
  std::ofstream(text_file) << "text";
  std::ofstream(garbage) << "neither a program nor a script";
  ASSERT_EQ(chmod(garbage.c_str(), 0755), 0);
  EXPECT_THAT(RunCommand({.program = "/nowhere/x", .arguments = {"--version"}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/x --version")));
  EXPECT_THAT(RunCommand({.program = text_file}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(text_file)));
  EXPECT_THAT(RunCommand({.program = garbage}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(RunCommand({.program = "/"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(RunCommand({.program = "cat"}), StatusIs(absl::StatusCode::kInvalidArgument));
  ExpectNoChildren();
}

TEST(CommandTest, KillsTheWholeGroupAtTheDeadline) {
  // The grandchild holds the output open and outlives its parent.
  const TemporaryTree tree;
  const std::string pid_file = tree.Path("grandchild");
  CommandRequest request = Shell("sleep 1000 & echo $! > " + pid_file + "; exit 0");
  request.deadline = absl::Seconds(1);  // time enough to write the file on a busy machine
  const absl::Time start = absl::Now();
  EXPECT_THAT(RunCommand(request), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            AllOf(HasSubstr("/bin/sh -c"), HasSubstr("1s"))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  std::string pid;
  std::ifstream(pid_file) >> pid;
  ASSERT_THAT(pid, Not(IsEmpty()));
  for (int i = 0; i < 1000 && IsAlive(pid); ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_FALSE(IsAlive(pid)) << pid;
  ExpectNoChildren();
}

TEST(CommandTest, StopsAProgramThatPrintsWithoutEnd) {
  for (const char* script : {"yes", "yes >&2"}) {
    SCOPED_TRACE(script);
    CommandRequest request = Shell(script);
    request.output_limit = 1 << 20;
    EXPECT_THAT(RunCommand(request),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1048576 bytes")));
    ExpectNoChildren();
  }
}

TEST(CommandTest, GivesArgumentsAndTheEnvironmentAsTheyAreAndNothingElse) {
  ASSERT_EQ(setenv("KIPT_TEST_SECRET", "1", 1), 0);
  const auto prints = [](const std::string& output) {
    return IsOkAndHolds(CommandResult{.exit_code = 0, .output = output, .errors = ""});
  };
  EXPECT_THAT(RunCommand({.program = "/usr/bin/env", .environment = {"A=1", "B=x y"}}),
              prints("A=1\nB=x y\n"));
  EXPECT_THAT(RunCommand({.program = "/usr/bin/env"}), prints(""));
  EXPECT_THAT(
      RunCommand({.program = "/usr/bin/printf", .arguments = {"[%s]", "a b", "$HOME", "", "*"}}),
      prints("[a b][$HOME][][*]"));
}

TEST(CommandTest, GivesThreeDescriptorsAndNothingElse) {
  // Without O_CLOEXEC: a library that forgot it.
  const int leaked = open("/dev/null", O_RDONLY);
  ASSERT_GE(leaked, 0);
  const int high = fcntl(leaked, F_DUPFD, 200);
  // A glob, so that no program that lists adds a descriptor of its own but the directory's, 3.
  const absl::StatusOr<CommandResult> result = RunCommand(
      Shell("for f in 0 1 2 3 4 5 6 7 8 9 200; do [ -e /proc/self/fd/$f ] && echo $f; done; :"));
  close(leaked);
  close(high);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->output, "0\n1\n2\n");
}

TEST(CommandTest, LeavesNoDescriptorOpen) {
  const auto lowest = [] {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
  };
  const int before = lowest();
  CommandRequest slow = Shell("sleep 100");
  slow.deadline = absl::Milliseconds(20);
  EXPECT_THAT(RunCommand(slow), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(RunCommand({.program = "/nowhere"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(RunCommand(Shell("echo")), IsOk());
  EXPECT_EQ(lowest(), before);
}

TEST(CommandTest, RunsWithDefaultSignalsWhateverOursAre) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &all, &old), 0);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<CommandResult> result = RunCommand(
      {.program = "/bin/grep", .arguments = {"-E", "^Sig(Blk|Ign)", "/proc/self/status"}});
  std::signal(SIGPIPE, handler);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &old, nullptr), 0);
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->output, HasSubstr("SigBlk:\t0000000000000000\n"));
  // Bit 12 is SIGPIPE's. Signals 32 and 33 are the C library's own and cannot be changed.
  uint64_t ignored = ~uint64_t{0};
  ASSERT_TRUE(absl::SimpleHexAtoi(result->output.substr(result->output.rfind('\t') + 1), &ignored));
  EXPECT_EQ(ignored & 0x7fffffff, 0U) << result->output;
}

TEST(CommandTest, WorksWhereOurOwnStandardStreamsAreClosed) {
  const pid_t child = fork();
  if (child == 0) {
    close(0);
    close(1);
    close(2);
    const absl::StatusOr<CommandResult> result =
        RunCommand({.program = "/bin/cat", .arguments = {"-", "/nowhere"}, .input = "in"});
    const bool good = result.ok() && result->output == "in" && result->exit_code == 1 &&
                      result->errors.find("/nowhere") != std::string::npos;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kipt::testing::command_test
