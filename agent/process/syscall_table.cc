// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_table.h"

#include <asm/ioctls.h>
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

constexpr ArgumentCondition kNotExecutable[] = {{2, PROT_EXEC, 0}};
// A thread of this process, not a process.
constexpr ArgumentCondition kThread[] = {{0, CLONE_THREAD, CLONE_THREAD}};
// A process, in the namespaces that we are in.
constexpr ArgumentCondition kNoNewNamespace[] = {{0,
                                                  CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                                      CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                                      CLONE_NEWNET,
                                                  0}};

constexpr ArgumentCondition kUnix[] = {{0, kInt, AF_UNIX}};
constexpr ArgumentCondition kNetfilter[] = {{0, kInt, AF_NETLINK}, {2, kInt, NETLINK_NETFILTER}};
constexpr ArgumentCondition kStreamIPv4[] = {{0, kInt, AF_INET}, {1, kSocketType, SOCK_STREAM}};
constexpr ArgumentCondition kStreamIPv6[] = {{0, kInt, AF_INET6}, {1, kSocketType, SOCK_STREAM}};
constexpr ArgumentCondition kRawIPv4[] = {{0, kInt, AF_INET}, {1, kSocketType, SOCK_RAW}};
constexpr ArgumentCondition kRawIPv6[] = {{0, kInt, AF_INET6}, {1, kSocketType, SOCK_RAW}};

constexpr ArgumentCondition kOfThisProcess[] = {{0, kInt, 0}};
constexpr ArgumentCondition kIsTerminal[] = {{1, kInt, TCGETS}};
constexpr ArgumentCondition kBytesToRead[] = {{1, kInt, FIONREAD}};
constexpr ArgumentCondition kNonBlocking[] = {{1, kInt, FIONBIO}};
constexpr ArgumentCondition kSetName[] = {{0, kInt, PR_SET_NAME}};
constexpr ArgumentCondition kGetName[] = {{0, kInt, PR_GET_NAME}};

constexpr SyscallUser kAlways = SyscallUser::kAlways;
constexpr SyscallUser kPrograms = SyscallUser::kPrograms;
constexpr SyscallUser kWithoutPrograms = SyscallUser::kWithoutPrograms;

constexpr SyscallGroup kGroups[] = {
    // Memory: malloc and its arenas, stacks of threads; mincore for libunwind, which looks before
    // it reads.
    {kAlways, "brk munmap mremap madvise mincore membarrier"},
    {kWithoutPrograms, "mmap mprotect", kNotExecutable},
    // A loader maps libraries.
    {kPrograms, "mmap mprotect"},

    // Threads, and how they and the process end.
    {kAlways, "futex set_robust_list get_robust_list rseq set_tid_address sched_yield"},
    {kAlways, "sched_getaffinity sched_getparam sched_getscheduler getcpu"},
    {kAlways, "getpid gettid getppid exit exit_group restart_syscall"},
    {kWithoutPrograms, "clone", kThread},
    {kAlways, "prctl", kSetName},  // pthread_setname_np of libmicrohttpd
    {kAlways, "prctl", kGetName},

    // Signals: signalfd of the event loop, and abort().
    {kAlways, "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait sigaltstack"},
    {kAlways, "tgkill signalfd4"},

    // Time, mostly through the vDSO, which asks the kernel where the machine's clock is no good.
    {kAlways, "clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep"},
    {kAlways, "timerfd_create timerfd_settime timerfd_gettime"},

    // The loop, and libmicrohttpd's.
    {kAlways, "epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2"},
    {kAlways, "poll ppoll select pselect6 eventfd2 pipe2"},
    {kAlways, "inotify_init1 inotify_add_watch inotify_rm_watch"},

    // Files: configuration, /proc, /sys, time zones, logs. Nothing is removed, renamed or owned.
    {kAlways, "openat openat2 open close close_range read pread64 readv write writev lseek"},
    {kAlways, "newfstatat fstat stat lstat statx fstatfs statfs"},
    {kAlways, "access faccessat faccessat2 readlink readlinkat getdents64 getcwd"},
    {kAlways, "fcntl dup dup2 dup3 fadvise64"},
    {kAlways, "ioctl", kIsTerminal},
    {kAlways, "ioctl", kBytesToRead},
    {kAlways, "ioctl", kNonBlocking},

    // Sockets: netfilter's, the service manager's, and those that listen. None connects: sd_notify
    // sends to an address.
    {kAlways, "socket", kUnix},
    {kAlways, "socket", kNetfilter},
    {kAlways, "socket", kStreamIPv4},
    {kAlways, "socket", kStreamIPv6},
    {kAlways, "bind listen accept accept4 shutdown getsockname getpeername"},
    {kAlways, "sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg getsockopt setsockopt"},

    // Who and where we are, for messages and for the C library.
    {kAlways, "getuid geteuid getgid getegid getrandom uname sysinfo getrusage"},
    // getrlimit(3), and the size of a new thread's stack.
    {kAlways, "prlimit64", kOfThisProcess},
    {kAlways, "getrlimit"},

    // To start a program, feed it, wait for it, and end it where it takes too long.
    {kPrograms, "clone", kNoNewNamespace},
    {kPrograms, "vfork fork execve wait4 waitid kill setpgid socketpair pipe"},
    // Its loader and its C library. (iptables-legacy may be a shell script that chooses one.)
    {kPrograms, "arch_prctl getresuid getresgid getgroups getpgrp getpgid"},
    // iptables-legacy-save and -restore: their socket, the lock, and how long they wait for it.
    {kPrograms, "socket", kRawIPv4},
    {kPrograms, "socket", kRawIPv6},
    {kPrograms, "flock alarm setitimer umask"},
};

// Its flags are in memory, where no filter can look. glibc then uses clone.
constexpr absl::string_view kReplaced[] = {"clone3"};

}  // namespace

constinit const absl::Span<const SyscallGroup> kSyscallTable = kGroups;
constinit const absl::Span<const absl::string_view> kSyscallsToReplace = kReplaced;

}  // namespace kipt::agent
