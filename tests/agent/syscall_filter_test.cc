// SPDX-License-Identifier: Apache-2.0
//
// The filter as any user can install it. What only root could try is in tests/kernel.
#include "agent/process/syscall_filter.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/process/sanitizer.h"
#include "agent/process/syscall_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kipt::agent {
namespace {

using ::testing::IsEmpty;

// Runs `body` in a child, which a filter never leaves; what it returns: what went wrong.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string wrong = body();
    const bool told =
        write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  std::string wrong;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    wrong.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? wrong : absl::StrCat(wrong, " wait status ", status);
}

// The last word of the line of /proc/thread-self/status that begins with `key`.
std::string OfThread(absl::string_view key) {
  std::ifstream file("/proc/thread-self/status");
  for (std::string line; std::getline(file, line);) {
    if (absl::string_view(line).substr(0, key.size()) == key) return line.substr(key.size() + 1);
  }
  return "";
}

// With a sanitizer there is no filter, and that is said.
std::string Installed(bool may_run_programs) {
  const absl::Status status = InstallSyscallFilter(may_run_programs);
  if (kBuiltWithASanitizer) return absl::IsUnimplemented(status) ? "" : status.ToString();
  if (!status.ok()) return status.ToString();
  if (OfThread("Seccomp:") != "2") return "no filter";
  return prctl(PR_SET_NAME, "renamed") == 0 ? "" : "prctl(PR_SET_NAME) refused";
}

TEST(SyscallFilterTest, HoldsInThreadsThatWereThereAndThatCome) {
  for (const bool may_run_programs : {false, true}) {
    EXPECT_THAT(InChild([may_run_programs]() -> std::string {
                  std::string before;
                  int ends[2];
                  if (pipe(ends) != 0) return "pipe";
                  std::thread was_there([&] {
                    char byte = 0;
                    if (read(ends[0], &byte, 1) == 1) before = OfThread("Seccomp:");
                  });
                  const std::string wrong = Installed(may_run_programs);
                  const bool woken = write(ends[1], "x", 1) == 1;
                  was_there.join();
                  if (!wrong.empty() || !woken) return absl::StrCat("not installed: ", wrong);
                  std::string after;
                  std::thread([&after] { after = OfThread("Seccomp:"); }).join();
                  const char* const expected = kBuiltWithASanitizer ? "0" : "2";
                  return before == expected && after == expected
                             ? ""
                             : absl::StrCat("before ", before, ", after ", after);
                }),
                IsEmpty())
        << may_run_programs;
  }
}

TEST(SyscallFilterTest, LetsOnlyTheOneVariantMakeProcesses) {
  if (kBuiltWithASanitizer) {
    EXPECT_EQ(InstallSyscallFilter(false).code(), absl::StatusCode::kUnimplemented);
    return;
  }
  const auto make_a_process = [](bool may_run_programs) -> std::string {
    if (std::string wrong = Installed(may_run_programs); !wrong.empty()) return wrong;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (child < 0) return absl::StrCat("fork: errno ", errno);
    return waitpid(child, nullptr, 0) == child ? "made" : "made and lost";
  };
  EXPECT_EQ(InChild([&] { return make_a_process(true); }), "made");
  EXPECT_EQ(InChild([&] { return make_a_process(false); }), absl::StrCat("fork: errno ", EPERM));
}

TEST(SyscallFilterTest, LetsAnAbortBeAnAbort) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    if (!Installed(false).empty()) _exit(1);
    // Not into the test's output.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    std::abort();
  }
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST(SyscallTableTest, SeparatesTheNamesByOneSpaceEach) {
  for (const SyscallGroup& group : kSyscallTable) {
    for (const absl::string_view name : absl::StrSplit(group.names, ' ')) {
      EXPECT_THAT(std::string(name), ::testing::MatchesRegex("[a-z0-9_]+")) << group.names;
    }
  }
}

}  // namespace
}  // namespace kipt::agent
