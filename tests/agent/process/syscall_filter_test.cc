// SPDX-License-Identifier: Apache-2.0
//
// The filter as any user can install it, and where a step of its making or loading fails: that is
// reported, and nothing is changed. What only root could try is in tests/kernel.
#include "agent/process/syscall_filter.h"

#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"

namespace {
std::string& FailingFunction() {
  static std::string name;
  return name;
}
}  // namespace

// The linker redirects the product's calls here (--wrap), and calls of __real_* to libseccomp.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
scmp_filter_ctx __real_seccomp_init(uint32_t action);
uint32_t __real_seccomp_arch_native();
int __real_seccomp_arch_add(scmp_filter_ctx filter, uint32_t machine);
int __real_seccomp_rule_add_array(scmp_filter_ctx filter, uint32_t action, int call,
                                  unsigned int count, const scmp_arg_cmp* conditions);

scmp_filter_ctx __wrap_seccomp_init(uint32_t action) {
  return FailingFunction() == "init" ? nullptr : __real_seccomp_init(action);
}
uint32_t __wrap_seccomp_arch_native() {
  return FailingFunction() == "arch_native" ? SCMP_ARCH_MIPS : __real_seccomp_arch_native();
}
int __wrap_seccomp_arch_add(scmp_filter_ctx filter, uint32_t machine) {
  return FailingFunction() == "arch_add" ? -EINVAL : __real_seccomp_arch_add(filter, machine);
}
int __wrap_seccomp_rule_add_array(scmp_filter_ctx filter, uint32_t action, int call,
                                  unsigned int count, const scmp_arg_cmp* conditions) {
  const bool fails = FailingFunction() == "rule_add_array" && call == SCMP_SYS(read);
  return fails ? -ENOMEM : __real_seccomp_rule_add_array(filter, action, call, count, conditions);
}
}
// NOLINTEND(bugprone-reserved-identifier)

namespace kipt::agent {
namespace {

using ::kipt::testing::FailingCall;
using ::kipt::testing::InChild;
using ::kipt::testing::OfThread;
using ::kipt::testing::WithFailingCall;

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

struct FilterFault {
  std::string name;
  std::string function;  // of libseccomp; empty: the kernel's, next
  FailingCall call = {};
  absl::StatusCode code = absl::StatusCode::kInternal;
  std::string message;
};

std::string Installing(const FilterFault& row) {
  const std::string before = OfThread("Seccomp_filters:");
  FailingFunction() = row.function;
  const absl::Status status = InstallSyscallFilter({});
  FailingFunction().clear();
  const std::string after = OfThread("Seccomp_filters:");
  if (before != after) return absl::StrCat("installed all the same: ", after, "; ");
  if (kBuiltWithASanitizer) return absl::IsUnimplemented(status) ? "" : status.ToString();
  const bool is_reported =
      status.code() == row.code && absl::StrContains(status.message(), row.message);
  return is_reported ? "" : status.ToString();
}

FailingCall Seccomp(uint32_t argument, uint32_t value, uint32_t error) {
  return {.number = SYS_seccomp, .argument = argument, .value = value, .error = error};
}

TEST(SyscallFilterFaultTest, IsReportedAndChangesNothing) {
  const FilterFault rows[] = {
      {.name = "NoMemoryForIt", .function = "init", .message = "making it"},
      {.name = "NotForThisMachine", .function = "arch_add", .message = "its machine"},
      {.name = "ARuleIsRefused", .function = "rule_add_array", .message = "read: "},
      {.name = "AMachineWithoutATable",
       .function = "arch_native",
       .code = absl::StatusCode::kUnimplemented,
       .message = "tested for x86_64, aarch64"},
      {.name = "AKernelWithoutFilters",
       .call = Seccomp(0, SECCOMP_SET_MODE_FILTER, EINVAL),
       .code = absl::StatusCode::kUnimplemented,
       .message = "no system call filters"},
      {.name = "AContainerThatForbidsFilters",
       .call = Seccomp(1, 0, EPERM),
       .code = absl::StatusCode::kUnimplemented,
       .message = "no system call filters"},
      {.name = "AKernelThatCannotFilterAllThreadsAtOnce",
       .call = Seccomp(1, SECCOMP_FILTER_FLAG_TSYNC, EINVAL),
       .message = "loading it"},
      {.name = "TheKernelRefusesToLoadIt",
       .call = {.number = SYS_prctl, .argument = 0, .value = PR_SET_NO_NEW_PRIVS, .error = EINVAL},
       .message = "loading it"},
  };
  for (const FilterFault& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(InChild([&]() -> std::string {
                if (!row.function.empty()) return Installing(row);
                std::string wrong;
                WithFailingCall(row.call, [&] { wrong = Installing(row); });
                return wrong;
              }),
              "");
  }
}

}  // namespace
}  // namespace kipt::agent
