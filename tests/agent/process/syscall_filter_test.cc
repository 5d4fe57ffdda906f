// SPDX-License-Identifier: Apache-2.0
//
// The filter as any user can install it. What only root could try is in tests/kernel.
#include "agent/process/syscall_filter.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/process/own_process.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::InChild;
using ::kipt::testing::OfThread;

// With a sanitizer there is no filter, and that is said.
std::string Installed(bool may_run_programs) {
  const absl::Status status = InstallSyscallFilter({.programs = may_run_programs});
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

// What the agent, its libraries and the C library call, whatever the machine. All arguments are -1,
// which is no address, no descriptor, no process and no option: none of them does anything.
constexpr char kNeeded[] =
    "brk munmap mremap madvise mincore membarrier set_robust_list get_robust_list rseq "
    "set_tid_address sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu getpid "
    "gettid getppid restart_syscall rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait "
    "sigaltstack signalfd4 clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep "
    "timerfd_create timerfd_settime timerfd_gettime epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "epoll_pwait2 poll ppoll select pselect6 eventfd2 pipe2 inotify_init1 inotify_add_watch "
    "inotify_rm_watch close close_range read pread64 readv write writev lseek newfstatat fstat "
    "stat lstat statx fstatfs statfs access faccessat faccessat2 readlink readlinkat getdents64 "
    "getcwd fcntl dup dup2 dup3 fadvise64 bind listen accept accept4 shutdown getsockname "
    "getpeername sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg getsockopt setsockopt getuid "
    "geteuid getgid getegid getrandom uname sysinfo getrusage getrlimit";
// What the programs of iptables-legacy call in addition, and what starts, waits for and ends them.
constexpr char kNeededForPrograms[] =
    "execve wait4 waitid setpgid socketpair pipe arch_prctl getresuid getresgid getgroups getpgrp "
    "getpgid flock alarm setitimer umask";

// glibc on s390x makes sockets through socketcall, whose arguments a filter cannot read.
#ifdef __s390x__
constexpr bool kRefusesRawSockets = false;
#else
constexpr bool kRefusesRawSockets = true;
#endif

struct Call {
  std::string name;
  // Negative, and errno, where it fails.
  std::function<long()> make;
  bool for_programs = false;
};

void AddWithoutMeaning(const char* names, bool for_programs, std::vector<Call>& calls) {
  for (const absl::string_view word : absl::StrSplit(names, ' ')) {
    const std::string name(word);
    const int number = seccomp_syscall_resolve_name(name.c_str());
    // Of other machines.
    if (number < 0) continue;
    calls.push_back(
        {name, [number] { return syscall(number, -1, -1, -1, -1, -1, -1); }, for_programs});
  }
}

long Map(int protection) {
  void* const page = mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? -1 : mprotect(page, 4096, protection);
}

long Wait(pid_t child) {
  if (child == 0) _exit(0);
  return child < 0 ? child : waitpid(child, nullptr, 0);
}

// Those that are permitted with some arguments only, and those that would do something.
std::vector<Call> CallsWithMeaning() {
  static int word = 0;
  const auto open_socket = [](int family, int type, int protocol) {
    return [=]() -> long { return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol); };
  };
  return {
      {"futex", [] { return syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1); }},
      {"mmap and mprotect", [] { return Map(PROT_READ | PROT_WRITE); }},
      {"prctl(PR_SET_NAME)", [] { return long{prctl(PR_SET_NAME, "renamed")}; }},
      {"prctl(PR_GET_NAME)",
       [] {
         char name[16];
         return long{prctl(PR_GET_NAME, name)};
       }},
      {"open to read", [] { return long{open("/no/such/file", O_RDONLY | O_CLOEXEC)}; }},
      {"open to write", [] { return long{open("/no/such/directory/file", O_WRONLY)}; }, true},
      {"tgkill", [] { return syscall(SYS_tgkill, getpid(), gettid(), 0); }},
      {"tgkill of another", [] { return syscall(SYS_tgkill, getppid(), getppid(), 0); }, true},
      {"ioctl(TCGETS)", [] { return long{ioctl(-1, TCGETS)}; }},
      {"ioctl(FIONREAD)", [] { return long{ioctl(-1, FIONREAD)}; }},
      {"ioctl(FIONBIO)", [] { return long{ioctl(-1, FIONBIO)}; }},
      {"ioctl(SIOCGIFNAME)", [] { return long{ioctl(-1, SIOCGIFNAME)}; }},
      {"socket(AF_UNIX)", open_socket(AF_UNIX, SOCK_DGRAM, 0)},
      {"socket(NETLINK_NETFILTER)", open_socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)},
      {"socket(AF_INET, SOCK_STREAM)", open_socket(AF_INET, SOCK_STREAM, 0)},
      {"socket(AF_INET6, SOCK_STREAM)", open_socket(AF_INET6, SOCK_STREAM, 0)},
      {"prlimit64 of this process",
       [] { return syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, nullptr); }},
      {"executable memory", [] { return Map(PROT_READ | PROT_EXEC); }, true},
      {"kill", [] { return long{kill(getpid(), 0)}; }, true},
      {"clone, as fork", [] { return Wait(fork()); }, true},
#ifdef SYS_fork
      {"fork", [] { return Wait(static_cast<pid_t>(syscall(SYS_fork))); }, true},
#endif
      {"vfork", [] { return Wait(vfork()); }, true},
      {"socket(AF_INET, SOCK_RAW)", open_socket(AF_INET, SOCK_RAW, IPPROTO_RAW),
       kRefusesRawSockets},
      {"socket(AF_INET6, SOCK_RAW)", open_socket(AF_INET6, SOCK_RAW, IPPROTO_RAW),
       kRefusesRawSockets},
  };
}

int Outcome(const Call& call) {
  errno = 0;
  return call.make() < 0 ? errno : 0;
}

TEST(SyscallFilterTest, ChangesNothingForTheCallsThatAreNeeded) {
  if (kBuiltWithASanitizer) {
    EXPECT_EQ(InstallSyscallFilter({}).code(), absl::StatusCode::kUnimplemented);
    return;
  }
  std::vector<Call> calls = CallsWithMeaning();
  AddWithoutMeaning(kNeeded, false, calls);
  AddWithoutMeaning(kNeededForPrograms, true, calls);
  for (const bool may_run_programs : {false, true}) {
    EXPECT_THAT(InChild([&]() -> std::string {
                  std::vector<int> without;
                  for (const Call& call : calls) without.push_back(Outcome(call));
                  std::string wrong = Installed(may_run_programs);
                  for (size_t i = 0; i < calls.size(); ++i) {
                    const bool refused = calls[i].for_programs && !may_run_programs;
                    const int expected = refused ? EPERM : without[i];
                    const int outcome = Outcome(calls[i]);
                    if (outcome == expected) continue;
                    absl::StrAppend(&wrong, calls[i].name, ": errno ", outcome, " and not ",
                                    expected, "; ");
                  }
                  return wrong;
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

TEST(SyscallFilterTest, LetsAnAbortBeAnAbort) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    // Not into the test's output.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    if (!Installed(false).empty()) _exit(1);
    std::abort();
  }
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

}  // namespace
}  // namespace kipt::agent
