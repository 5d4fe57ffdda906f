// SPDX-License-Identifier: Apache-2.0
//
// The filter as any user can install it. What only root could try is in tests/kernel.
#include "agent/process/syscall_filter.h"

#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::InChild;
using ::kipt::testing::OfThread;

// With a sanitizer there is no filter, which the status must report.
std::string Installed(bool may_run_programs) {
  const absl::Status status = InstallSyscallFilter({.programs = may_run_programs});
  if (kBuiltWithASanitizer) return absl::IsUnimplemented(status) ? "" : status.ToString();
  if (!status.ok()) return status.ToString();
  if (OfThread("Seccomp:") != "2") return "no filter";
  return prctl(PR_SET_NAME, "renamed") == 0 ? "prctl(PR_SET_NAME) allowed" : "";
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

TEST(SyscallFilterTest, LetsThreadsProcessesAndSignalHandlersEnd) {
  struct Row {
    const char* name;
    std::function<void()> end;
  };
  const Row rows[] = {
      {"exit", [] { syscall(SYS_exit, 7); }},
      {"exit_group", [] { syscall(SYS_exit_group, 7); }},
      {"rt_sigreturn",
       [] {
         std::signal(SIGUSR1, [](int) {});
         if (raise(SIGUSR1) == 0) _exit(7);
       }},
  };
  for (const bool may_run_programs : {false, true}) {
    for (const Row& row : rows) {
      EXPECT_EQ(InChild([&] {
                  std::string wrong = Installed(may_run_programs);
                  if (wrong.empty()) row.end();
                  return absl::StrCat(wrong, " did not end");
                }),
                absl::StrCat(" wait status ", 7 << 8))
          << row.name;
    }
  }
}

}  // namespace
}  // namespace kipt::agent
