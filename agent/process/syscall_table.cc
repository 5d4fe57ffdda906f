// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_table.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

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

}  // namespace

constinit const absl::Span<const SyscallGroup> kSyscallTable = kGroups;

}  // namespace kipt::agent
