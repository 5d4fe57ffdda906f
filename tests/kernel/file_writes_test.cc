// SPDX-License-Identifier: Apache-2.0
//
// What can be done to files and other processes once writes are forbidden, by root with every
// capability, in the process and in the programs that it starts.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/child.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::ForbidFileWrites;
using agent::kBuiltWithASanitizer;

long Abi() { return syscall(SYS_landlock_create_ruleset, nullptr, 0, 1); }

// Without Landlock only the report about that is tested.
bool HasLandlock() { return !kBuiltWithASanitizer && Abi() >= 1; }

class FileWritesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tree_.Write("here", "precious");
    tree_.Directory("directory");
    tree_.Directory("lock");
  }
  std::string Path(const std::string& name) const { return tree_.Path(name); }
  std::string Lock() const { return Path("lock/xtables.lock"); }

  std::string Forbid(const std::string& may_be_made) const {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "PR_SET_NO_NEW_PRIVS";
    const absl::Status status = ForbidFileWrites(may_be_made);
    return status.ok() ? "" : status.ToString();
  }

  TemporaryTree tree_;
};

struct Attempt {
  const char* name;
  // Negative, and errno, where it fails.
  std::function<long()> make;
};

std::string TryAll(const std::vector<Attempt>& attempts) {
  std::string wrong;
  for (const Attempt& attempt : attempts) {
    errno = 0;
    const long result = attempt.make();
    if (result < 0 && (errno == EACCES || errno == EXDEV)) continue;
    absl::StrAppend(&wrong, attempt.name, " returned ", result, " (", std::strerror(errno), "); ");
  }
  return wrong;
}

TEST_F(FileWritesTest, ReportsWhereTheKernelCannotForbidThem) {
  if (HasLandlock()) return;
  EXPECT_THAT(InChild([&] { return Forbid(""); }), StartsWith("UNIMPLEMENTED"));
}

// The kernel fails a call by the value of one of its arguments, so each row needs another value.
TEST_F(FileWritesTest, AStepThatFailsIsNamed) {
  if (!HasLandlock()) return;
  struct Row {
    FailingCall call;
    std::string error;
  };
  const Row rows[] = {
      {{SYS_landlock_create_ruleset, 2, 1, EOPNOTSUPP}, "has no Landlock"},
      {{SYS_landlock_create_ruleset, 2, 0, EPERM}, "(Landlock): making the rules: "},
      {{SYS_landlock_add_rule, 3, 0, EPERM}, "(Landlock): /dev/null: "},
      {{SYS_landlock_restrict_self, 1, 0, EPERM}, "(Landlock): applying them: "}};
  for (const Row& row : rows) {
    std::string error;
    WithFailingCall(row.call, [&] { error = Forbid(Lock()); });
    EXPECT_THAT(error, HasSubstr(row.error));
  }
}

TEST_F(FileWritesTest, ChangeNoFileAnyMore) {
  if (!HasLandlock()) return;
  const std::string here = Path("here");
  const std::string gone = Path("gone");
  const std::vector<Attempt> attempts = {
      {"core_pattern", [] { return long{open("/proc/sys/kernel/core_pattern", O_WRONLY)}; }},
      {"/etc/passwd", [] { return long{open("/etc/passwd", O_RDWR)}; }},
      {"write", [&] { return long{open(here.c_str(), O_WRONLY | O_APPEND)}; }},
      {"make", [&] { return long{open(gone.c_str(), O_RDONLY | O_CREAT, 0600)}; }},
      {"without a name",
       [&] { return long{open(tree_.root().c_str(), O_TMPFILE | O_WRONLY, 0600)}; }},
      {"unlink", [&] { return long{unlink(here.c_str())}; }},
      {"rmdir", [&] { return long{rmdir(Path("directory").c_str())}; }},
      {"mkdir", [&] { return long{mkdir(gone.c_str(), 0700)}; }},
      {"mkfifo", [&] { return long{mkfifo(gone.c_str(), 0600)}; }},
      {"symlink", [&] { return long{symlink("x", gone.c_str())}; }},
      {"link", [&] { return long{link(here.c_str(), Path("directory/here").c_str())}; }},
      {"rename", [&] { return long{rename(here.c_str(), gone.c_str())}; }}};
  for (const std::string& lock : {std::string(), Lock()}) {
    EXPECT_THAT(InChild([&] {
                  std::string wrong = Forbid(lock);
                  return wrong.empty() ? TryAll(attempts) : wrong;
                }),
                IsEmpty());
  }
  if (Abi() >= 3) {  // Linux 6.2
    EXPECT_THAT(InChild([&] {
                  const std::string wrong = Forbid("");
                  if (!wrong.empty()) return wrong;
                  return TryAll({{"truncate", [&] { return long{truncate(here.c_str(), 0)}; }},
                                 {"cut off", [&] { return long{open(here.c_str(), O_TRUNC)}; }}});
                }),
                IsEmpty());
  }
  EXPECT_EQ(FileText(here), "precious");
}

TEST_F(FileWritesTest, AreForbiddenToProgramsTooExceptToTheLockAndDevNull) {
  if (!HasLandlock()) return;
  const auto run = [](const std::string& script) {
    const pid_t child = fork();
    if (child == 0) {
      if (std::freopen("/dev/null", "r", stderr) == nullptr) _exit(9);
      execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      _exit(8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_THAT(InChild([&]() -> std::string {
                if (std::string wrong = Forbid(Lock()); !wrong.empty()) return wrong;
                const int made = open(Lock().c_str(), O_RDONLY | O_CREAT, 0600);
                if (made < 0) return absl::StrCat("the lock: ", std::strerror(errno));
                if (run("echo x >/dev/null") != 0) return "/dev/null cannot be written to";
                if (run("echo gone >" + Path("here")) == 0) return "a program can write";
                if (run("rm " + Lock()) == 0) return "a program can remove the lock";
                return run("exec 9<" + Lock() + "; cat >/dev/null " + Path("here")) == 0
                           ? ""
                           : "cannot read";
              }),
              IsEmpty());
}

TEST_F(FileWritesTest, LeaveSignalsToOwnProgramsOnly) {
  if (!HasLandlock() || Abi() < 6) return;  // Linux 6.12
  EXPECT_THAT(InChild([&]() -> std::string {
                if (std::string wrong = Forbid(""); !wrong.empty()) return wrong;
                if (kill(getppid(), 0) == 0 || errno != EPERM) return "the parent can be signalled";
                if (syscall(SYS_tgkill, getppid(), getppid(), 0) == 0) return "tgkill reaches it";
                const pid_t child = StartPausedChild();
                if (kill(child, SIGKILL) != 0) return "the child cannot be signalled";
                return waitpid(child, nullptr, 0) == child ? "" : "waitpid";
              }),
              IsEmpty());
}

}  // namespace
}  // namespace kipt::testing
