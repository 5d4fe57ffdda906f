// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_filter.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/process/own_process.h"

namespace kipt::agent {
namespace {

// When a call of the table is made.
enum class SyscallUser : uint8_t {
  kAlways,
  kPrograms,         // only if programs may be run: by them, or to start them
  kWithoutPrograms,  // only if no programs may be run
  kRoutes,           // only if what sets and tests the mark without a rule is read
};

// s390x has clone's flags in the second argument, and mmap's arguments in memory.
enum class SyscallMachines : uint8_t { kAll, kAllButS390x, kOnlyS390x };

struct SyscallGroup {
  SyscallUser user = SyscallUser::kAlways;
  // The kernel's names, separated by spaces; a machine skips those that it does not have. New calls
  // of the C library belong here, because it does not fall back to older ones after EPERM.
  absl::string_view names;
  // All must hold, on all 64 bits of an argument (32 on a 32-bit machine). If several groups name a
  // call, one that holds is enough.
  std::array<scmp_arg_cmp, 2> conditions = {};
  SyscallMachines machines = SyscallMachines::kAll;
};

// The kernel reads the lower 32 bits of an int; the upper ones are undefined.
constexpr uint64_t kInt = 0xffff'ffff;
// The bits of socket(2)'s type, without SOCK_CLOEXEC and SOCK_NONBLOCK.
constexpr uint64_t kSocketType = 0xf;

// argument & mask == value
constexpr scmp_arg_cmp Is(unsigned int argument, uint64_t mask, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}
constexpr scmp_arg_cmp IsInt(unsigned int argument, uint64_t value) {
  return Is(argument, kInt, value);
}
constexpr scmp_arg_cmp HasFlag(unsigned int argument, uint64_t flag) {
  return Is(argument, flag, flag);
}
constexpr scmp_arg_cmp HasNone(unsigned int argument, uint64_t flags) {
  return Is(argument, flags, {});
}

// Clone flags of a process in other namespaces than ours.
constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
// Open flags to write, make, truncate or link a file. O_TMPFILE has O_DIRECTORY in it.
constexpr uint64_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);

using enum SyscallUser;
using enum SyscallMachines;

constexpr SyscallGroup kTable[] = {
    // Memory: malloc and its arenas, stacks of threads; mincore for libunwind's checks.
    {kAlways, "brk munmap mremap madvise mincore membarrier"},
    {kWithoutPrograms, "mprotect", {HasNone(2, PROT_EXEC)}},
    {kWithoutPrograms, "mmap mmap2", {HasNone(2, PROT_EXEC)}, kAllButS390x},
    {kWithoutPrograms, "mmap", {}, kOnlyS390x},
    // A loader maps libraries.
    {kPrograms, "mmap mmap2 mprotect"},

    // Threads, and how they and the process end.
    {kAlways,
     "futex futex_time64 set_robust_list get_robust_list rseq set_tid_address sched_yield"},
    // 32-bit Arm: where a thread's own data is.
    {kAlways, "set_tls cacheflush"},
    {kAlways, "sched_getaffinity sched_getparam sched_getscheduler getcpu"},
    {kAlways, "getpid gettid getppid exit exit_group restart_syscall"},
    // A thread, not a process.
    {kWithoutPrograms, "clone", {HasFlag(0, CLONE_THREAD)}, kAllButS390x},
    {kWithoutPrograms, "clone", {HasFlag(1, CLONE_THREAD)}, kOnlyS390x},
    {kAlways, "prctl", {IsInt(0, PR_GET_NAME)}},

    // Signals: signalfd of the event loop, and abort(), which also makes tgkill (below).
    {kAlways, "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait sigaltstack"},
    {kAlways, "rt_sigtimedwait_time64 sigreturn signalfd4"},
    {kPrograms, "tgkill"},

    // Time, mostly through the vDSO, which calls the kernel if the machine's clock is unusable.
    {kAlways, "clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep"},
    {kAlways, "clock_gettime64 clock_getres_time64 clock_nanosleep_time64"},
    {kAlways, "timerfd_create timerfd_settime timerfd_gettime timerfd_settime64 timerfd_gettime64"},

    // The loop, and the endpoints'.
    {kAlways, "epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2"},
    {kAlways, "poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 eventfd2 pipe2"},
    {kAlways, "inotify_init1 inotify_add_watch inotify_rm_watch"},

    // Files: configuration, /proc, /sys, time zones. None is removed or renamed, and none is opened
    // for writing. (iptables-legacy makes its lock.)
    {kWithoutPrograms, "open", {HasNone(1, kWrites)}},
    {kWithoutPrograms, "openat", {HasNone(2, kWrites)}},
    {kPrograms, "open openat"},
    {kAlways, "close close_range read pread64 readv write writev lseek _llseek"},
    {kAlways, "newfstatat fstatat64 fstat fstat64 stat stat64 lstat lstat64 statx"},
    {kAlways, "fstatfs fstatfs64 statfs statfs64"},
    {kAlways, "access faccessat faccessat2 readlink readlinkat getdents64 getcwd"},
    {kAlways, "fcntl fcntl64 dup dup2 dup3 fadvise64 arm_fadvise64_64"},
    {kAlways, "ioctl", {IsInt(1, TCGETS)}},
    {kAlways, "ioctl", {IsInt(1, FIONREAD)}},
    {kAlways, "ioctl", {IsInt(1, FIONBIO)}},
    // The name of an interface, by its index.
    {kAlways, "ioctl", {IsInt(1, SIOCGIFNAME)}},

    // Sockets: netfilter's, the service manager's, and listening ones. None connects, as sd_notify
    // sends to an address.
    {kAlways, "socket", {IsInt(0, AF_UNIX)}},
    {kAlways, "socket", {IsInt(0, AF_NETLINK), IsInt(2, NETLINK_NETFILTER)}},
    {kRoutes, "socket", {IsInt(0, AF_NETLINK), IsInt(2, NETLINK_ROUTE)}},
    {kRoutes, "socket", {IsInt(0, AF_NETLINK), IsInt(2, NETLINK_GENERIC)}},
    {kAlways, "socket", {IsInt(0, AF_INET), Is(1, kSocketType, SOCK_STREAM)}},
    {kAlways, "socket", {IsInt(0, AF_INET6), Is(1, kSocketType, SOCK_STREAM)}},
    {kAlways, "bind listen accept accept4 shutdown getsockname getpeername"},
    {kAlways, "send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg recvmmsg_time64"},
    {kAlways, "getsockopt setsockopt"},

    // For messages and for the C library.
    {kAlways, "getuid geteuid getgid getegid getrandom uname sysinfo getrusage"},
    {kAlways, "getuid32 geteuid32 getgid32 getegid32"},
    // getrlimit(3), and the size of a new thread's stack.
    {kAlways, "prlimit64", {IsInt(0, 0)}},
    {kAlways, "getrlimit ugetrlimit"},

    // Start a program, write its input, wait for it, and end it at its deadline.
    {kPrograms, "clone", {HasNone(0, kNewNamespaces)}, kAllButS390x},
    {kPrograms, "clone", {HasNone(1, kNewNamespaces)}, kOnlyS390x},
    {kPrograms, "vfork fork execve wait4 waitid kill setpgid socketpair pipe"},
    // Its loader and its C library. (iptables-legacy may be a shell script.)
    {kPrograms, "arch_prctl getresuid getresgid getgroups getpgrp getpgid"},
    {kPrograms, "getresuid32 getresgid32 getgroups32"},
    // iptables-legacy-save and -restore: their socket, and the lock and its timeout.
    {kPrograms, "socket", {IsInt(0, AF_INET), Is(1, kSocketType, SOCK_RAW)}},
    {kPrograms, "socket", {IsInt(0, AF_INET6), Is(1, kSocketType, SOCK_RAW)}},
    {kPrograms, "flock alarm setitimer umask"},
};

// These fail with ENOSYS, so that glibc falls back to clone and openat: their flags are in memory,
// which a filter cannot read.
constexpr absl::string_view kReplaced = "clone3 openat2";

absl::Status Failure(absl::string_view step, int error_number) {
  return absl::InternalError(
      absl::StrCat("the system call filter: ", step, ": ", ErrorText(error_number)));
}

// A kernel with filters rejects a null filter for its address.
absl::Status CheckKernel() {
  syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nullptr);
  if (errno == EFAULT) return absl::OkStatus();
  // EPERM comes from a container's own filter.
  return absl::UnimplementedError(absl::StrCat(
      "this kernel, or the container, has no system call filters (seccomp): ", ErrorText(errno)));
}

// SCMP_ARCH_*; 0: no such machine.
uint32_t MachineOf(absl::string_view name) {
  return seccomp_arch_resolve_name(std::string(name).c_str());
}

// `names` and `conditions` as in SyscallGroup.
absl::Status AddRules(const SyscallFilter& filter, uint32_t action, absl::string_view names,
                      const std::array<scmp_arg_cmp, 2>& conditions = {}) {
  const auto count = absl::c_count_if(
      conditions, [](const scmp_arg_cmp& one) { return one.op == SCMP_CMP_MASKED_EQ; });
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ' '))) {
    // The name means this machine's number; libseccomp finds the other machine's. A part of
    // socketcall(2), whose arguments are in memory, is allowed whatever they are.
    const int number = seccomp_syscall_resolve_name(name.c_str());
    const int refused = seccomp_rule_add_array(filter.get(), action, number,
                                               static_cast<unsigned>(count), conditions.data());
    if (refused != 0) return Failure(name, -refused);
  }
  return absl::OkStatus();
}

bool IsFor(const SyscallGroup& group, uint32_t machine, const SyscallNeeds& needs) {
  const SyscallMachines others =
      machine == SCMP_ARCH_S390X ? SyscallMachines::kAllButS390x : SyscallMachines::kOnlyS390x;
  if (group.machines == others) return false;
  return group.user == SyscallUser::kAlways ||
         group.user == (needs.programs ? SyscallUser::kPrograms : SyscallUser::kWithoutPrograms) ||
         (group.user == SyscallUser::kRoutes && needs.routes);
}

}  // namespace

absl::StatusOr<SyscallFilter> MakeSyscallFilter(absl::string_view machine,
                                                const SyscallNeeds& needs, int process) {
  const uint32_t target = MachineOf(machine);
  SyscallFilter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release);
  if (filter == nullptr) return Failure("making it", ENOMEM);
  // In this order: one filter cannot be for machines of both byte orders.
  seccomp_arch_remove(filter.get(), SCMP_ARCH_NATIVE);
  const int refused = seccomp_arch_add(filter.get(), target);
  if (refused != 0) return Failure("its machine", -refused);
  absl::Status status =
      AddRules(filter, SCMP_ACT_ALLOW, "tgkill", {IsInt(0, static_cast<uint64_t>(process))});
  for (const SyscallGroup& group : kTable) {
    if (!IsFor(group, target, needs)) continue;
    status.Update(AddRules(filter, SCMP_ACT_ALLOW, group.names, group.conditions));
  }
  status.Update(AddRules(filter, SCMP_ACT_ERRNO(ENOSYS), kReplaced));
  if (!status.ok()) return status;
  return filter;
}

absl::Status InstallSyscallFilter(const SyscallNeeds& needs) {
  const auto* const machine = absl::c_find_if(kSyscallTableMachines, [](absl::string_view name) {
    return !kBuiltWithASanitizer && MachineOf(name) == seccomp_arch_native();
  });
  if (machine == kSyscallTableMachines.end()) {
    return absl::UnimplementedError(absl::StrCat("the table of system calls was tested for ",
                                                 absl::StrJoin(kSyscallTableMachines, ", "),
                                                 " without a sanitizer, and not for this build"));
  }
  if (absl::Status status = CheckKernel(); !status.ok()) return status;
  const absl::StatusOr<SyscallFilter> filter = MakeSyscallFilter(*machine, needs, getpid());
  if (!filter.ok()) return filter.status();
  // All threads at once, or none.
  int refused = seccomp_attr_set(filter->get(), SCMP_FLTATR_CTL_TSYNC, true);
  if (refused == 0) refused = seccomp_load(filter->get());
  return refused == 0 ? absl::OkStatus() : Failure("loading it", -refused);
}

}  // namespace kipt::agent
