// SPDX-License-Identifier: Apache-2.0
//
// The filter for every machine that the table is for, judged by an interpreter of its program:
// which call, with which arguments, ends how. The numbers of calls are libseccomp's.
#include <asm/ioctls.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "agent/process/files.h"
#include "agent/process/syscall_filter.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

struct Machine {
  std::string name;  // as libseccomp has it
  uint32_t audit;    // what the kernel reports, from linux/audit.h
  bool big_endian = false;
  bool bits32 = false;
};
void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

// What the kernel would be given, in the byte order of that machine.
std::vector<sock_filter> ProgramOf(const SyscallFilter& filter) {
  const OwnedFd file(memfd_create("filter", MFD_CLOEXEC));
  EXPECT_EQ(seccomp_export_bpf(filter.get(), file.get()), 0);
  std::vector<sock_filter> program(static_cast<size_t>(lseek(file.get(), 0, SEEK_END)) /
                                   sizeof(sock_filter));
  const size_t size = program.size() * sizeof(sock_filter);
  EXPECT_EQ(pread(file.get(), program.data(), size, 0), static_cast<ssize_t>(size));
  return program;
}

// The 32-bit words of linux/seccomp.h's seccomp_data, as a program of that machine loads them.
using CallWords = std::array<uint32_t, sizeof(seccomp_data) / 4>;
CallWords Words(const Machine& machine, int number, const std::vector<uint64_t>& arguments) {
  CallWords words{};
  words[0] = static_cast<uint32_t>(number);
  words[1] = machine.audit;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto low = static_cast<uint32_t>(arguments[i]);
    const auto high = static_cast<uint32_t>(arguments[i] >> 32);
    words[4 + 2 * i] = machine.big_endian ? high : low;
    words[5 + 2 * i] = machine.big_endian ? low : high;
  }
  return words;
}

// What the program returns; 0, which no filter of ours does, where it is no program.
uint32_t Interpret(std::vector<sock_filter> program, bool big_endian, const CallWords& data) {
  for (sock_filter& one : program) {
    one.code = big_endian ? be16toh(one.code) : le16toh(one.code);
    one.k = big_endian ? be32toh(one.k) : le32toh(one.k);
  }
  uint32_t accumulator = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& one = program[at];
    const auto jump = [&](bool holds) { at += holds ? one.jt : one.jf; };
    switch (one.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (one.k / 4 >= data.size()) return 0;
        accumulator = data[one.k / 4];
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= one.k;
        break;
      case BPF_JMP | BPF_JA:
        at += one.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(accumulator == one.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(accumulator >= one.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(accumulator > one.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        jump((accumulator & one.k) != 0);
        break;
      case BPF_RET | BPF_K:
        return one.k;
      default:
        ADD_FAILURE() << "instruction " << one.code;
        return 0;
    }
  }
  return 0;
}

constexpr int kProcess = 4242;

const Machine kMachines[] = {{"x86_64", AUDIT_ARCH_X86_64},
                             {"aarch64", AUDIT_ARCH_AARCH64},
                             {"ppc64le", AUDIT_ARCH_PPC64LE},
                             {.name = "arm", .audit = AUDIT_ARCH_ARM, .bits32 = true},
                             {.name = "s390x", .audit = AUDIT_ARCH_S390X, .big_endian = true}};

constexpr uint32_t kAllowed = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kUnknownCall = SECCOMP_RET_ERRNO | ENOSYS;

// asm/unistd.h of the two machines that have socketcall as well.
const std::map<std::pair<std::string, std::string>, int> kSocketCalls = {
    {{"ppc64le", "socket"}, 326},  {{"ppc64le", "bind"}, 327},    {{"ppc64le", "connect"}, 328},
    {{"ppc64le", "listen"}, 329},  {{"ppc64le", "sendto"}, 335},  {{"ppc64le", "recvfrom"}, 337},
    {{"ppc64le", "sendmsg"}, 341}, {{"ppc64le", "recvmsg"}, 342}, {{"ppc64le", "accept4"}, 344},
    {{"s390x", "socket"}, 359},    {{"s390x", "bind"}, 361},      {{"s390x", "connect"}, 362},
    {{"s390x", "listen"}, 363},    {{"s390x", "accept4"}, 364},   {{"s390x", "sendto"}, 369},
    {{"s390x", "sendmsg"}, 370},   {{"s390x", "recvfrom"}, 371},  {{"s390x", "recvmsg"}, 372}};

class SyscallTableTest : public ::testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    const auto make = [](const SyscallNeeds& needs, std::vector<sock_filter>& program) {
      const auto filter = MakeSyscallFilter(GetParam().name, needs, kProcess);
      ASSERT_THAT(filter, IsOk());
      program = ProgramOf(*filter);
    };
    make({}, without_);
    make({.programs = true}, with_programs_);
    make({.routes = true}, with_routes_);
  }
  static int Number(const std::string& name) {
    // libseccomp has these as parts of socketcall only.
    const auto direct = kSocketCalls.find({GetParam().name, name});
    if (direct != kSocketCalls.end()) return direct->second;
    return seccomp_syscall_resolve_name_arch(seccomp_arch_resolve_name(GetParam().name.c_str()),
                                             name.c_str());
  }
  static bool Exists(const std::string& name) { return Number(name) >= 0; }

  // How `name` ends in the filter of nft, or in that of iptables-legacy.
  uint32_t Ends(const std::string& name, const std::vector<uint64_t>& arguments,
                bool programs = false) const {
    return Ends(name, arguments, programs ? with_programs_ : without_);
  }
  static uint32_t Ends(const std::string& name, const std::vector<uint64_t>& arguments,
                       const std::vector<sock_filter>& program) {
    EXPECT_TRUE(Exists(name)) << name;
    return Interpret(program, GetParam().big_endian, Words(GetParam(), Number(name), arguments));
  }

  std::vector<sock_filter> without_;
  std::vector<sock_filter> with_programs_;
  std::vector<sock_filter> with_routes_;
};

TEST_P(SyscallTableTest, OpensFilesForReadingOnlyWhereNoProgramsAreRun) {
  for (const char* name : {"open", "openat"}) {
    if (!Exists(name)) continue;
    const auto with_flags = [&](uint64_t flags) {
      return std::string(name) == "open" ? std::vector<uint64_t>{1, flags, 0644}
                                         : std::vector<uint64_t>{1, 2, flags, 0644};
    };
    for (const int flags : {O_RDONLY, O_RDONLY | O_CLOEXEC | O_NONBLOCK, O_PATH | O_DIRECTORY}) {
      EXPECT_EQ(Ends(name, with_flags(static_cast<uint64_t>(flags))), kAllowed) << name << flags;
    }
    for (const int flags : {O_WRONLY, O_RDWR, O_ACCMODE, O_RDONLY | O_CREAT, O_RDONLY | O_TRUNC,
                            O_WRONLY | O_APPEND, O_TMPFILE | O_RDWR, O_TMPFILE | O_RDONLY}) {
      EXPECT_EQ(Ends(name, with_flags(static_cast<uint64_t>(flags))), kRefused) << name << flags;
      EXPECT_EQ(Ends(name, with_flags(static_cast<uint64_t>(flags)), true), kAllowed);
    }
  }
  if (Exists("creat")) EXPECT_EQ(Ends("creat", {1, 0644}), kRefused);
  for (const bool programs : {false, true}) {
    EXPECT_EQ(Ends("openat2", {1, 2, 3, 4}, programs), kUnknownCall);
    EXPECT_EQ(Ends("clone3", {1, 2}, programs), kUnknownCall);
  }
}

TEST_P(SyscallTableTest, SendsSignalsToThisProcessOnlyWhereNoProgramsAreRun) {
  EXPECT_EQ(Ends("tgkill", {kProcess, 4243, 6}), kAllowed);
  EXPECT_EQ(Ends("tgkill", {0xffff'ffff'0000'0000 | kProcess, 4243, 6}), kAllowed)
      << "the upper half of an int's register is whatever was there";
  for (const uint64_t process : {uint64_t{1}, uint64_t{4243}, uint64_t{0}, ~uint64_t{0}}) {
    EXPECT_EQ(Ends("tgkill", {process, 4242, 6}), kRefused) << process;
  }
  for (const char* name : {"kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
                           "pidfd_send_signal", "pidfd_open"}) {
    EXPECT_EQ(Ends(name, {kProcess, kProcess, 0}), kRefused) << name;
  }
}

// s390x is the one where the flags come second.
TEST_P(SyscallTableTest, MakesThreadsButNoProcessesAndNoNamespaces) {
  const bool second = GetParam().name == "s390x";
  const auto clone = [&](uint64_t flags, bool programs) {
    // The other argument is the stack, of which any bit may be set.
    std::set<uint32_t> ends;
    for (const uint64_t stack : {uint64_t{0}, uint64_t{0x7fff'ffff'f000}}) {
      ends.insert(Ends("clone",
                       second ? std::vector<uint64_t>{stack, flags, 1, 2, 3}
                              : std::vector<uint64_t>{flags, stack, 1, 2, 3},
                       programs));
    }
    EXPECT_EQ(ends.size(), 1U) << "the stack decides about " << flags;
    return *ends.begin();
  };
  constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
  constexpr uint64_t kChild = 17;  // SIGCHLD
  EXPECT_EQ(clone(kThread, false), kAllowed);
  EXPECT_EQ(clone(kThread | kChild, false), kAllowed) << "a thread's end is no signal";
  EXPECT_EQ(clone(kChild, false), kRefused);
  EXPECT_EQ(clone(kChild, true), kAllowed);
  EXPECT_EQ(clone(CLONE_VM | CLONE_VFORK | kChild, true), kAllowed);
  for (const int space : {CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWUTS,
                          CLONE_NEWIPC, CLONE_NEWCGROUP}) {
    EXPECT_EQ(clone(static_cast<uint64_t>(space) | kChild, true), kRefused) << space;
    EXPECT_EQ(clone(static_cast<uint64_t>(space) | kChild, false), kRefused) << space;
  }
  for (const char* name : {"execve", "execveat", "fork", "vfork", "unshare", "setns"}) {
    if (Exists(name)) EXPECT_EQ(Ends(name, {1, 2, 3}), kRefused) << name;
  }
}

TEST_P(SyscallTableTest, MakesNoMemoryExecutableWhereNoProgramsAreRun) {
  // s390x's mmap has its arguments in memory, which a filter cannot read.
  const bool mmap_is_seen = GetParam().name != "s390x";
  const std::string mmap = GetParam().bits32 ? "mmap2" : "mmap";
  for (const bool programs : {false, true}) {
    EXPECT_EQ(Ends(mmap, {0, 4096, PROT_READ | PROT_WRITE, 2, 3, 0}, programs), kAllowed);
    EXPECT_EQ(Ends("mprotect", {0, 4096, PROT_READ}, programs), kAllowed);
  }
  EXPECT_EQ(Ends("mprotect", {0, 4096, PROT_READ | PROT_EXEC}), kRefused);
  EXPECT_EQ(Ends(mmap, {0, 4096, PROT_READ | PROT_EXEC, 2, 3, 0}),
            mmap_is_seen ? kRefused : kAllowed);
  EXPECT_EQ(Ends(mmap, {0, 4096, PROT_READ | PROT_EXEC, 2, 3, 0}, true), kAllowed);
}

struct ArgumentCase {
  std::string call;
  std::vector<uint64_t> arguments;
  uint32_t expected;
  bool programs = false;
};

TEST_P(SyscallTableTest, ChecksEachArgumentThatDecides) {
  for (const char* name :
       {"connect", "bpf", "ptrace", "init_module", "mount", "unlinkat", "renameat2", "fchmodat",
        "ftruncate", "linkat", "mkdirat", "memfd_create", "io_uring_setup", "process_vm_writev",
        "userfaultfd", "seccomp"}) {
    if (Exists(name)) EXPECT_EQ(Ends(name, {1, 2, 3}), kRefused) << name;
  }
  const ArgumentCase rows[] = {
      {"prctl", {PR_SET_NAME}, kRefused},
      {"prctl", {PR_GET_NAME}, kAllowed},
      {"prctl", {PR_SET_DUMPABLE}, kRefused},
      {"prctl", {PR_CAPBSET_DROP}, kRefused},
      {"ioctl", {1, TCGETS}, kAllowed},
      {"ioctl", {1, FIONREAD}, kAllowed},
      {"ioctl", {1, FIONBIO}, kAllowed},
      {"ioctl", {1, SIOCGIFNAME}, kAllowed},
      {"ioctl", {1, SIOCSIFNAME}, kRefused},
      {"ioctl", {1, TIOCSTI}, kRefused},
      {"prlimit64", {0, 7}, kAllowed},
      {"prlimit64", {kProcess, 7}, kRefused},
      {"socket", {AF_UNIX, SOCK_STREAM}, kAllowed},
      {"socket", {AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC}, kAllowed},
      {"socket", {AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER}, kAllowed},
      {"socket", {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE}, kRefused},
      {"socket", {AF_NETLINK, SOCK_RAW, NETLINK_GENERIC}, kRefused},
      {"socket", {AF_INET, SOCK_RAW, 255}, kRefused},
      {"socket", {AF_INET, SOCK_RAW, 255}, kAllowed, true},
      {"socket", {AF_INET6, SOCK_STREAM}, kAllowed},
      {"socket", {AF_VSOCK, SOCK_STREAM}, kRefused},
      {"socket", {AF_PACKET, SOCK_RAW, NETLINK_NETFILTER}, kRefused},
      {"socket", {AF_INET, SOCK_DGRAM}, kRefused},
      {"socket", {AF_INET6, SOCK_RAW, 255}, kRefused},
      {"socket", {AF_INET6, SOCK_RAW, 255}, kAllowed, true},
      {"socket", {AF_INET, SOCK_DGRAM}, kRefused, true},
      {"socket", {AF_PACKET, SOCK_RAW, 3}, kRefused, true},
  };
  for (const ArgumentCase& row : rows) {
    EXPECT_EQ(Ends(row.call, row.arguments, row.programs), row.expected)
        << row.call << ::testing::PrintToString(row.arguments);
    // The upper half of an int's register is whatever was there.
    std::vector<uint64_t> dirty = row.arguments;
    for (uint64_t& argument : dirty) argument |= 0xffff'ffff'0000'0000;
    EXPECT_EQ(Ends(row.call, dirty, row.programs), row.expected)
        << row.call << ::testing::PrintToString(dirty);
  }
}

TEST_P(SyscallTableTest, OpensASocketOfRoutingRulesOnlyWhereTheyAreRead) {
  EXPECT_EQ(Ends("socket", {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE}, with_routes_), kAllowed);
  EXPECT_EQ(Ends("socket", {AF_NETLINK, SOCK_RAW, NETLINK_GENERIC}, with_routes_), kAllowed);
  EXPECT_EQ(Ends("socket", {AF_NETLINK, SOCK_RAW, NETLINK_AUDIT}, with_routes_), kRefused);
  EXPECT_EQ(Ends("socket", {AF_PACKET, SOCK_RAW, NETLINK_ROUTE}, with_routes_), kRefused);
  EXPECT_EQ(Ends("execve", {1, 2, 3}, with_routes_), kRefused);
}

TEST_P(SyscallTableTest, HasNoRuleForCallsThatTheMachineDoesNotHave) {
  for (const char* name : {"open", "set_tls", "fcntl64", "getuid32", "getresuid32", "time"}) {
    if (Exists(name)) continue;
    EXPECT_NE(Interpret(with_programs_, GetParam().big_endian,
                        Words(GetParam(), Number(name), {0, 0, 0})),
              kAllowed)
        << name;
  }
}

// What the agent, its libraries and the C library call, of that what the machine has.
constexpr char kNeeded[] =
    "brk munmap mremap madvise mincore membarrier futex set_robust_list get_robust_list rseq "
    "set_tid_address sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu getpid "
    "gettid getppid restart_syscall rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait "
    "sigaltstack signalfd4 clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep "
    "timerfd_create timerfd_settime timerfd_gettime epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "epoll_pwait2 poll ppoll select pselect6 eventfd2 pipe2 inotify_init1 inotify_add_watch "
    "inotify_rm_watch close close_range read pread64 readv write writev lseek newfstatat fstat "
    "stat lstat statx fstatfs statfs access faccessat faccessat2 readlink readlinkat getdents64 "
    "getcwd fcntl dup dup2 dup3 fadvise64 bind listen accept accept4 shutdown getsockname "
    "getpeername sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg getsockopt setsockopt getuid "
    "geteuid getgid getegid getrandom uname sysinfo getrusage getrlimit exit_group rt_sigreturn "
    "prlimit64";
// Of 32-bit machines, which have every one: files beyond 2 GB, times beyond 2038, 32-bit numbers of
// users; the kernel's own calls of Arm.
constexpr char kNeededBy32Bits[] =
    "_llseek fcntl64 fstat64 lstat64 stat64 fstatat64 statfs64 fstatfs64 getuid32 geteuid32 "
    "getgid32 getegid32 ugetrlimit _newselect clock_gettime64 clock_getres_time64 "
    "clock_nanosleep_time64 futex_time64 ppoll_time64 pselect6_time64 recvmmsg_time64 "
    "rt_sigtimedwait_time64 timerfd_gettime64 timerfd_settime64 set_tls cacheflush sigreturn "
    "send recv arm_fadvise64_64";
// What the programs of iptables-legacy call in addition, and what starts, waits for and ends them.
constexpr char kNeededForPrograms[] =
    "execve wait4 waitid setpgid socketpair pipe arch_prctl getresuid getresgid getgroups getpgrp "
    "getpgid flock alarm setitimer umask";

TEST_P(SyscallTableTest, LetsWhatIsNeededThrough) {
  const std::pair<std::string, uint32_t> rows[] = {
      {kNeeded, kAllowed}, {kNeededBy32Bits, kAllowed}, {kNeededForPrograms, kRefused}};
  for (const auto& [names, without_programs] : rows) {
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ' '))) {
      if (!Exists(name) && (!GetParam().bits32 || names != kNeededBy32Bits)) continue;
      // 0 is of no meaning to any of them; prlimit64 takes it for this process, which is meant.
      EXPECT_EQ(Ends(name, {0, 0, 0, 0, 0, 0}), without_programs) << name;
      EXPECT_EQ(Ends(name, {0, 0, 0, 0, 0, 0}, true), kAllowed) << name;
    }
  }
}

// glibc on s390x, which is built for kernels before 4.3, asks socketcall. Its arguments are in
// memory, so any kind of socket is let through there; capabilities remain.
TEST_P(SyscallTableTest, LetsPartsOfSocketcallThroughAsTheirOwnCalls) {
  if (!Exists("socketcall")) return;
  constexpr uint64_t kConnect = 3;
  for (const uint64_t part : {1U, 2U, 5U, 20U}) {  // socket, bind, accept, sendmmsg
    EXPECT_EQ(Ends("socketcall", {part, 1}), kAllowed) << part;
  }
  EXPECT_EQ(Ends("socketcall", {kConnect, 1}), kRefused);
}

TEST_P(SyscallTableTest, TakesCallsOfAnotherMachineForNone) {
  Machine other = GetParam();
  other.audit = AUDIT_ARCH_MIPS;
  EXPECT_NE(Interpret(without_, GetParam().big_endian, Words(other, Number("read"), {})), kAllowed);
}

INSTANTIATE_TEST_SUITE_P(Machines, SyscallTableTest, ::testing::ValuesIn(kMachines),
                         [](const auto& row) { return row.param.name; });

TEST(SyscallTableMachinesTest, AreThoseThatAreTestedHere) {
  std::vector<std::string> tested;
  for (const Machine& machine : kMachines) tested.push_back(machine.name);
  EXPECT_THAT(std::vector<std::string>(kSyscallTableMachines.begin(), kSyscallTableMachines.end()),
              UnorderedElementsAreArray(tested));
}

}  // namespace
}  // namespace kipt::agent
