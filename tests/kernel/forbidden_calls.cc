// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/forbidden_calls.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kipt::testing {
namespace {

struct Call {
  const char* name;
  // Negative, and errno, where it fails.
  long (*make)(int network_namespace);
  // The filter refuses all of them; whether the capabilities do so, too.
  enum class By { kCapabilities, kFilter } by = By::kFilter;
  // The agent of legacy iptables may.
  bool programs_may = false;
};

long MapExecutable() {
  const void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? -1 : 0;
}

long Fork() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return child < 0 ? child : waitpid(child, nullptr, 0);
}

long CloneIntoUserNamespace() {
  const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  return child;
}

long Execute() {
  char* const no_words[] = {nullptr};
  return execve("/no/such/program", no_words, no_words);
}

// The kernel reads it through a pointer.
long MakeBpfMap() {
  bpf_attr map = {};
  map.map_type = BPF_MAP_TYPE_ARRAY;
  map.key_size = map.value_size = 4;
  map.max_entries = 1;
  return syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map));
}

constexpr Call::By kCapabilities = Call::By::kCapabilities;
constexpr Call::By kFilter = Call::By::kFilter;

constexpr Call kCalls[] = {
    {"mount", [](int) -> long { return mount("none", "/mnt", "tmpfs", 0, nullptr); },
     kCapabilities},
    {"umount2", [](int) -> long { return umount2("/no/such/place", 0); }},
    {"chroot", [](int) -> long { return chroot("/"); }, kCapabilities},
    {"setns", [](int fd) -> long { return setns(fd, CLONE_NEWNET); }, kCapabilities},
    {"unshare(CLONE_NEWNET)", [](int) -> long { return unshare(CLONE_NEWNET); }, kCapabilities},
    // No such process.
    {"ptrace", [](int) -> long { return ptrace(PTRACE_ATTACH, 1 << 30, nullptr, nullptr); }},
    {"process_vm_readv",
     [](int) -> long {
       return syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0);
     }},
    {"bpf", [](int) -> long { return MakeBpfMap(); }},
    {"perf_event_open",
     [](int) -> long { return syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
    // These are not in every kernel, and then are not refused for want of a capability.
    {"init_module", [](int) -> long { return syscall(SYS_init_module, "", 0, ""); }},
    {"finit_module", [](int) -> long { return syscall(SYS_finit_module, -1, "", 0); }},
    {"delete_module",
     [](int) -> long { return syscall(SYS_delete_module, "no_such_module", O_NONBLOCK); }},
    {"kexec_load", [](int) -> long { return syscall(SYS_kexec_load, 0, 0, nullptr, ~0UL); }},
    // Neither magic number is right.
    {"reboot", [](int) -> long { return syscall(SYS_reboot, 1, 2, 3, nullptr); }, kCapabilities},
    {"keyctl",
     [](int) -> long {
       return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0);
     }},
    {"io_uring_setup", [](int) -> long { return syscall(SYS_io_uring_setup, 1, nullptr); }},
    {"userfaultfd", [](int) -> long { return syscall(SYS_userfaultfd, 0); }},
    {"setuid", [](int) -> long { return setuid(1234); }, kCapabilities},
    // Too long for the kernel, which looks at that last.
    {"sethostname", [](int) -> long { return syscall(SYS_sethostname, "x", 65); }, kCapabilities},
    {"settimeofday", [](int) -> long { return syscall(SYS_settimeofday, nullptr, nullptr); }},
    {"unlink", [](int) -> long { return unlink("/no/such/file"); }},
    {"rename", [](int) -> long { return rename("/no/such/file", "/no/such/place"); }},
    {"chmod", [](int) -> long { return chmod("/no/such/file", 0); }},
    // Nothing is written; and in /proc no file can be made.
    {"open to write", [](int) -> long { return open("/proc/sys/kernel/core_pattern", O_WRONLY); },
     kFilter, true},
    {"open and cut off",
     [](int) -> long { return open("/proc/sys/kernel/core_pattern", O_RDONLY | O_TRUNC); }, kFilter,
     true},
    {"open to read and write",
     [](int) -> long { return open("/proc/sys/kernel/core_pattern", O_RDWR); }, kFilter, true},
    {"make a file",
     [](int) -> long { return open("/proc/no-such-file", O_RDONLY | O_CREAT, 0600); }, kFilter,
     true},
    {"make a file without a name",
     [](int) -> long { return open("/proc", O_TMPFILE | O_WRONLY, 0600); }, kFilter, true},
#ifdef SYS_creat
    {"creat", [](int) -> long { return syscall(SYS_creat, "/proc/no-such-file", 0600); }},
#endif
    {"tgkill of another process",
     [](int) -> long { return syscall(SYS_tgkill, 1 << 30, 1 << 30, 0); }, kFilter, true},
    {"kill", [](int) -> long { return kill(1 << 30, 0); }, kFilter, true},
    {"TIOCSTI", [](int) -> long { return ioctl(STDIN_FILENO, TIOCSTI, ""); }},
    {"prctl(PR_SET_DUMPABLE)", [](int) -> long { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); }},
    {"a limit of the parent's",
     [](int) -> long { return prlimit(getppid(), RLIMIT_CORE, nullptr, nullptr); }},
    {"connect", [](int) -> long { return connect(-1, nullptr, 0); }},
    {"socket(AF_PACKET)", [](int) -> long { return socket(AF_PACKET, SOCK_RAW, 0); }},
    {"socket(AF_ALG)", [](int) -> long { return socket(AF_ALG, SOCK_SEQPACKET, 0); }},
    {"socket(AF_VSOCK)", [](int) -> long { return socket(AF_VSOCK, SOCK_STREAM, 0); }},
    {"socket(AF_INET, SOCK_DGRAM)", [](int) -> long { return socket(AF_INET, SOCK_DGRAM, 0); }},
    {"socket(NETLINK_ROUTE)",
     [](int) -> long { return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE); }},
    {"socket(AF_INET, SOCK_RAW)",
     [](int) -> long { return socket(AF_INET, SOCK_RAW, IPPROTO_RAW); }, kCapabilities,
     /*programs_may=*/true},
    {"executable memory", [](int) -> long { return MapExecutable(); }, kFilter, true},
    {"fork", [](int) -> long { return Fork(); }, kFilter, true},
    {"execve", [](int) -> long { return Execute(); }, kFilter, true},
    {"execveat",
     [](int) -> long {
       return syscall(SYS_execveat, -1, "/no/such/program", nullptr, nullptr, 0);
     }},
    // Last, because who got in would there have too few capabilities for the others.
    {"clone(CLONE_NEWUSER)", [](int) -> long { return CloneIntoUserNamespace(); }},
    {"unshare(CLONE_NEWUSER)", [](int) -> long { return unshare(CLONE_NEWUSER); }},
};

}  // namespace

ForbiddenCalls::ForbiddenCalls(bool may_run_programs)
    : may_run_programs_(may_run_programs),
      network_namespace_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {}

ForbiddenCalls::~ForbiddenCalls() { close(network_namespace_); }

std::string ForbiddenCalls::TryAll(Guard guard) const {
  std::string wrong;
  for (const Call& call : kCalls) {
    if (call.programs_may && may_run_programs_) continue;
    if (guard == Guard::kCapabilities && call.by == Call::By::kFilter) continue;
    errno = 0;
    const long result = call.make(network_namespace_);
    if (result < 0 && (errno == EPERM || errno == EACCES)) continue;
    absl::StrAppend(&wrong, call.name, " returned ", result, " (", std::strerror(errno), "); ");
  }
  return wrong;
}

}  // namespace kipt::testing
