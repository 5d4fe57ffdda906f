// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_filter.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/process/privileges.h"

namespace kipt::agent {
namespace {

// The kernel looks at the lower 32 bits of an int, and the upper ones are whatever was there.
constexpr uint64_t kInt = 0xffff'ffff;
// Of socket(2)'s type, without SOCK_CLOEXEC and SOCK_NONBLOCK.
constexpr uint64_t kSocketType = 0xf;

// argument & mask == value
constexpr scmp_arg_cmp Is(unsigned int argument, uint64_t mask, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

constexpr scmp_arg_cmp kNotExecutable[] = {Is(2, PROT_EXEC, 0)};
// A thread of this process, not a process.
constexpr scmp_arg_cmp kThread[] = {Is(0, CLONE_THREAD, CLONE_THREAD)};
constexpr scmp_arg_cmp kThreadOnS390x[] = {Is(1, CLONE_THREAD, CLONE_THREAD)};
// A process, in the namespaces that we are in.
constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr scmp_arg_cmp kNoNewNamespace[] = {Is(0, kNewNamespaces, 0)};
constexpr scmp_arg_cmp kNoNewNamespaceOnS390x[] = {Is(1, kNewNamespaces, 0)};

// What open(2) needs to write, make, cut off or link a file. O_TMPFILE has O_DIRECTORY in it.
constexpr uint64_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
constexpr scmp_arg_cmp kOpenToRead[] = {Is(1, kWrites, O_RDONLY)};
constexpr scmp_arg_cmp kOpenAtToRead[] = {Is(2, kWrites, O_RDONLY)};

constexpr scmp_arg_cmp kUnix[] = {Is(0, kInt, AF_UNIX)};
constexpr scmp_arg_cmp kNetfilter[] = {Is(0, kInt, AF_NETLINK), Is(2, kInt, NETLINK_NETFILTER)};
constexpr scmp_arg_cmp kRoute[] = {Is(0, kInt, AF_NETLINK), Is(2, kInt, NETLINK_ROUTE)};
constexpr scmp_arg_cmp kStreamIPv4[] = {Is(0, kInt, AF_INET), Is(1, kSocketType, SOCK_STREAM)};
constexpr scmp_arg_cmp kStreamIPv6[] = {Is(0, kInt, AF_INET6), Is(1, kSocketType, SOCK_STREAM)};
constexpr scmp_arg_cmp kRawIPv4[] = {Is(0, kInt, AF_INET), Is(1, kSocketType, SOCK_RAW)};
constexpr scmp_arg_cmp kRawIPv6[] = {Is(0, kInt, AF_INET6), Is(1, kSocketType, SOCK_RAW)};

constexpr scmp_arg_cmp kOfThisProcess[] = {Is(0, kInt, 0)};
constexpr scmp_arg_cmp kIsTerminal[] = {Is(1, kInt, TCGETS)};
constexpr scmp_arg_cmp kBytesToRead[] = {Is(1, kInt, FIONREAD)};
constexpr scmp_arg_cmp kNonBlocking[] = {Is(1, kInt, FIONBIO)};
constexpr scmp_arg_cmp kSetName[] = {Is(0, kInt, PR_SET_NAME)};
constexpr scmp_arg_cmp kGetName[] = {Is(0, kInt, PR_GET_NAME)};

using enum SyscallUser;
using enum SyscallMachines;

constexpr SyscallGroup kGroups[] = {
    // Memory: malloc and its arenas, stacks of threads; mincore for libunwind, which looks before
    // it reads.
    {kAlways, "brk munmap mremap madvise mincore membarrier"},
    {kWithoutPrograms, "mprotect", kNotExecutable},
    {kWithoutPrograms, "mmap mmap2", kNotExecutable, kAllButS390x},
    {kWithoutPrograms, "mmap", {}, kOnlyS390x},
    // A loader maps libraries.
    {kPrograms, "mmap mmap2 mprotect"},

    // Threads, and how they and the process end.
    {kAlways,
     "futex futex_time64 set_robust_list get_robust_list rseq set_tid_address sched_yield"},
    // Of 32-bit Arm: where a thread's own data is.
    {kAlways, "set_tls cacheflush"},
    {kAlways, "sched_getaffinity sched_getparam sched_getscheduler getcpu"},
    {kAlways, "getpid gettid getppid exit exit_group restart_syscall"},
    {kWithoutPrograms, "clone", kThread, kAllButS390x},
    {kWithoutPrograms, "clone", kThreadOnS390x, kOnlyS390x},
    {kAlways, "prctl", kSetName},  // pthread_setname_np of libmicrohttpd
    {kAlways, "prctl", kGetName},

    // Signals: signalfd of the event loop, and abort(), which is kSyscallOnOwnProcess.
    {kAlways, "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait sigaltstack"},
    {kAlways, "rt_sigtimedwait_time64 sigreturn signalfd4"},
    {kPrograms, "tgkill"},

    // Time, mostly through the vDSO, which asks the kernel where the machine's clock is no good.
    {kAlways, "clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep"},
    {kAlways, "clock_gettime64 clock_getres_time64 clock_nanosleep_time64"},
    {kAlways, "timerfd_create timerfd_settime timerfd_gettime timerfd_settime64 timerfd_gettime64"},

    // The loop, and libmicrohttpd's.
    {kAlways, "epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2"},
    {kAlways, "poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 eventfd2 pipe2"},
    {kAlways, "inotify_init1 inotify_add_watch inotify_rm_watch"},

    // Files: configuration, /proc, /sys, time zones. Nothing is removed, renamed or owned, and
    // nothing is written but where it was opened before. (iptables-legacy makes its lock.)
    {kWithoutPrograms, "open", kOpenToRead},
    {kWithoutPrograms, "openat", kOpenAtToRead},
    {kPrograms, "open openat"},
    {kAlways, "close close_range read pread64 readv write writev lseek _llseek"},
    {kAlways, "newfstatat fstatat64 fstat fstat64 stat stat64 lstat lstat64 statx"},
    {kAlways, "fstatfs fstatfs64 statfs statfs64"},
    {kAlways, "access faccessat faccessat2 readlink readlinkat getdents64 getcwd"},
    {kAlways, "fcntl fcntl64 dup dup2 dup3 fadvise64 fadvise64_64 arm_fadvise64_64"},
    {kAlways, "ioctl", kIsTerminal},
    {kAlways, "ioctl", kBytesToRead},
    {kAlways, "ioctl", kNonBlocking},

    // Sockets: netfilter's, the service manager's, and those that listen. None connects: sd_notify
    // sends to an address.
    {kAlways, "socket", kUnix},
    {kAlways, "socket", kNetfilter},
    {kRoutes, "socket", kRoute},
    {kAlways, "socket", kStreamIPv4},
    {kAlways, "socket", kStreamIPv6},
    {kAlways, "bind listen accept accept4 shutdown getsockname getpeername"},
    {kAlways, "send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg recvmmsg_time64"},
    {kAlways, "getsockopt setsockopt"},

    // Who and where we are, for messages and for the C library.
    {kAlways, "getuid geteuid getgid getegid getrandom uname sysinfo getrusage"},
    {kAlways, "getuid32 geteuid32 getgid32 getegid32"},
    // getrlimit(3), and the size of a new thread's stack.
    {kAlways, "prlimit64", kOfThisProcess},
    {kAlways, "getrlimit ugetrlimit"},

    // To start a program, feed it, wait for it, and end it where it takes too long.
    {kPrograms, "clone", kNoNewNamespace, kAllButS390x},
    {kPrograms, "clone", kNoNewNamespaceOnS390x, kOnlyS390x},
    {kPrograms, "vfork fork execve wait4 waitid kill setpgid socketpair pipe"},
    // Its loader and its C library. (iptables-legacy may be a shell script that chooses one.)
    {kPrograms, "arch_prctl getresuid getresgid getgroups getpgrp getpgid"},
    {kPrograms, "getresuid32 getresgid32 getgroups32"},
    // iptables-legacy-save and -restore: their socket, the lock, and how long they wait for it.
    {kPrograms, "socket", kRawIPv4},
    {kPrograms, "socket", kRawIPv6},
    {kPrograms, "flock alarm setitimer umask"},
};

// Calls that fail with ENOSYS, so that the C library makes an older one: their flags are in memory,
// where no filter can look. glibc then uses clone and openat.
constexpr absl::string_view kReplaced = "clone3 openat2";

// The call that only reaches this process, by its first argument, where no programs may be run.
constexpr absl::string_view kOnOwnProcess = "tgkill";

absl::Status Failure(absl::string_view step, int error_number) {
  return absl::InternalError(absl::StrCat("the system call filter: ", step, ": ",
                                          std::generic_category().message(error_number)));
}

// A filter that is nowhere is refused for its address by a kernel that knows filters.
absl::Status CheckKernel() {
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nullptr) == 0 || errno == EFAULT) {
    return absl::OkStatus();
  }
  // EPERM: of a container's own filter.
  return absl::UnimplementedError(
      absl::StrCat("this kernel, or the container, has no system call filters (seccomp): ",
                   std::generic_category().message(errno)));
}

// For whom a filter is.
struct Target {
  uint32_t machine = 0;  // SCMP_ARCH_*
  SyscallNeeds needs;
  int process = 0;
};

// 0: no such machine.
uint32_t MachineOf(absl::string_view name) {
  return seccomp_arch_resolve_name(std::string(name).c_str());
}

// Whether the machine has the call itself, or as a part of socketcall(2), whose arguments are in
// memory: libseccomp then lets it through whatever they are.
bool Has(uint32_t machine, const std::string& name) {
  constexpr int kFirstOfSocketcall = -120;
  constexpr int kLastOfSocketcall = -100;
  const int number = seccomp_syscall_resolve_name_arch(machine, name.c_str());
  return number >= 0 || (number >= kFirstOfSocketcall && number <= kLastOfSocketcall);
}

absl::Status AddRule(scmp_filter_ctx filter, const Target& target, uint32_t action,
                     absl::string_view call, absl::Span<const scmp_arg_cmp> conditions) {
  const std::string name(call);
  // The number here stands for the name; libseccomp finds the other machine's.
  const int number = seccomp_syscall_resolve_name(name.c_str());
  if (number == __NR_SCMP_ERROR) {
    return absl::InternalError(absl::StrCat("the system call filter: no machine has ", name));
  }
  if (!Has(target.machine, name)) return absl::OkStatus();
  const int refused = seccomp_rule_add_array(
      filter, action, number, static_cast<unsigned int>(conditions.size()), conditions.data());
  return refused == 0 ? absl::OkStatus() : Failure(name, -refused);
}

bool IsFor(const SyscallGroup& group, const Target& target) {
  const SyscallMachines others = target.machine == SCMP_ARCH_S390X ? SyscallMachines::kAllButS390x
                                                                   : SyscallMachines::kOnlyS390x;
  if (group.machines == others) return false;
  const bool programs = target.needs.programs;
  return group.user == SyscallUser::kAlways ||
         group.user == (programs ? SyscallUser::kPrograms : SyscallUser::kWithoutPrograms) ||
         (group.user == SyscallUser::kRoutes && target.needs.routes);
}

absl::Status Fill(scmp_filter_ctx filter, const Target& target) {
  absl::Status status;
  const auto add = [&](absl::string_view names, uint32_t action,
                       absl::Span<const scmp_arg_cmp> conditions) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      if (status.ok()) status = AddRule(filter, target, action, name, conditions);
    }
  };
  for (const SyscallGroup& group : kSyscallTable) {
    if (IsFor(group, target)) add(group.names, SCMP_ACT_ALLOW, group.conditions);
  }
  if (!target.needs.programs) {
    const scmp_arg_cmp own = {.arg = 0,
                              .op = SCMP_CMP_MASKED_EQ,
                              .datum_a = 0xffff'ffff,
                              .datum_b = static_cast<uint64_t>(target.process)};
    add(kOnOwnProcess, SCMP_ACT_ALLOW, {&own, 1});
  }
  add(kReplaced, SCMP_ACT_ERRNO(ENOSYS), {});
  return status;
}

}  // namespace

constinit const absl::Span<const SyscallGroup> kSyscallTable = kGroups;

absl::StatusOr<SyscallFilter> MakeSyscallFilter(absl::string_view machine,
                                                const SyscallNeeds& needs, int process) {
  const Target target = {MachineOf(machine), needs, process};
  SyscallFilter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release);
  if (filter == nullptr) return Failure("making it", ENOMEM);
  if (target.machine != seccomp_arch_native()) {
    // In this order: one filter cannot be for machines of both byte orders.
    int refused = seccomp_arch_remove(filter.get(), SCMP_ARCH_NATIVE);
    if (refused == 0) refused = seccomp_arch_add(filter.get(), target.machine);
    if (refused != 0) return Failure("its machine", -refused);
  }
  if (absl::Status status = Fill(filter.get(), target); !status.ok()) return status;
  return filter;
}

absl::Status InstallSyscallFilter(const SyscallNeeds& needs) {
  if (kBuiltWithASanitizer) {
    return absl::UnimplementedError(
        "built with a sanitizer, whose run time makes system calls of its own");
  }
  const auto* const machine =
      std::find_if(kSyscallTableMachines.begin(), kSyscallTableMachines.end(),
                   [](absl::string_view name) { return MachineOf(name) == seccomp_arch_native(); });
  if (machine == kSyscallTableMachines.end()) {
    return absl::UnimplementedError(absl::StrCat("the table of system calls was tested for ",
                                                 absl::StrJoin(kSyscallTableMachines, ", "),
                                                 " and not for this machine"));
  }
  if (absl::Status status = CheckKernel(); !status.ok()) return status;
  const absl::StatusOr<SyscallFilter> filter = MakeSyscallFilter(*machine, needs, getpid());
  if (!filter.ok()) return filter.status();
  // All threads at once, or none.
  if (const int refused = seccomp_attr_set(filter->get(), SCMP_FLTATR_CTL_TSYNC, 1); refused != 0) {
    return Failure("TSYNC", -refused);
  }
  const int refused = seccomp_load(filter->get());
  return refused == 0 ? absl::OkStatus() : Failure("loading it", -refused);
}

}  // namespace kipt::agent
