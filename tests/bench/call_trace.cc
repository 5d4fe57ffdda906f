// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/call_trace.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

// ip_tables' options are numbered from here in SOL_IP and IPPROTO_IPV6 (linux/netfilter_ipv4/
// ip_tables.h, IPT_BASE_CTL).
constexpr uint64_t kXtablesOptions = 64;
constexpr auto kSyscallStop = SIGTRAP | 0x80;
constexpr int kFailed = 3;

// "socket:[4242]" of a descriptor of `process`.
std::string SocketName(pid_t process, uint64_t fd) {
  const std::string path = absl::StrCat("/proc/", process, "/fd/", static_cast<int>(fd));
  std::array<char, 64> name = {};
  const ssize_t length = readlink(path.c_str(), name.data(), name.size() - 1);
  return length > 0 ? std::string(name.data(), static_cast<size_t>(length)) : "";
}

// Of the sockets that this process holds already, and that a fork inherits.
std::set<std::string> OwnNetlinkSockets() {
  std::set<std::string> names;
  for (int fd = 0; fd < 1024; ++fd) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK) {
      names.insert(SocketName(getpid(), static_cast<uint64_t>(fd)));
    }
  }
  return names;
}

class Tracer {
 public:
  Tracer(pid_t root, Counted counted)
      : root_(root), counted_(counted), netlink_sockets_(OwnNetlinkSockets()) {}

  absl::StatusOr<CallCounts> Run() {
    int status = 0;
    if (waitpid(root_, &status, 0) != root_ || !WIFSTOPPED(status)) {
      return absl::InternalError("the traced process does not stop");
    }
    seen_.insert(root_);
    constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                              PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                              PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, root_, nullptr, kOptions) != 0) {
      return absl::InternalError(absl::StrCat("PTRACE_SETOPTIONS: ", std::strerror(errno)));
    }
    Resume(root_, 0);
    while (true) {
      const pid_t task = waitpid(-1, &status, __WALL);
      if (task < 0) return absl::InternalError(absl::StrCat("waitpid: ", std::strerror(errno)));
      if (WIFSTOPPED(status)) {
        Stopped(task, status);
      } else if (task == root_) {
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return counts_;
        return absl::InternalError("what was traced failed");
      }
    }
  }

 private:
  struct Call {
    uint64_t number = 0;
    std::array<uint64_t, 6> arguments = {};
  };

  static void Resume(pid_t task, int signal) {
    ptrace(PTRACE_SYSCALL, task, nullptr, static_cast<long>(signal));
  }

  // What posix_spawn does between fork and exec is the starter's.
  bool IsCounted(pid_t task) const {
    return counted_ == Counted::kAll || of_programs_.contains(task);
  }

  void Stopped(pid_t task, int status) {
    const int signal = WSTOPSIG(status);
    const bool is_new = seen_.insert(task).second;
    if (signal == kSyscallStop) {
      Syscall(task);
      return Resume(task, 0);
    }
    const int event = status >> 16;
    if (event == PTRACE_EVENT_EXEC) {
      ++counts_.programs;
      programs_.insert(task);
      of_programs_.insert(task);
    }
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
      unsigned long child = 0;
      ptrace(PTRACE_GETEVENTMSG, task, nullptr, &child);
      if (of_programs_.contains(task)) of_programs_.insert(static_cast<pid_t>(child));
    }
    if (event == PTRACE_EVENT_EXIT && programs_.contains(task)) {
      counts_.program_peak_kib = std::max(counts_.program_peak_kib, MemoryOf(task).peak_kib);
    }
    // A new task begins with a SIGSTOP that is the tracer's own.
    Resume(task, event != 0 || (is_new && signal == SIGSTOP) ? 0 : signal);
  }

  void Syscall(pid_t task) {
    __ptrace_syscall_info info = {};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, task, sizeof(info), &info) <= 0) {
      return;
    }
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      Call& call = calls_[task];
      call.number = info.entry.nr;
      for (size_t i = 0; i < call.arguments.size(); ++i) call.arguments[i] = info.entry.args[i];
      // The last call of the root is the fork's own end, not the work's.
      const bool end = task == root_ && call.number == SYS_exit_group;
      if (IsCounted(task) && !end) ++counts_.system_calls;
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.is_error == 0) {
      Returned(task, calls_[task], info.exit.rval);
    }
  }

  void Returned(pid_t task, const Call& call, int64_t result) {
    const auto& arguments = call.arguments;
    switch (call.number) {
      case SYS_socket:
        if (arguments[0] == AF_NETLINK) {
          netlink_sockets_.insert(SocketName(task, static_cast<uint64_t>(result)));
        }
        break;
      case SYS_sendto:
      case SYS_sendmsg:
      case SYS_write:
        if (IsNetlink(task, arguments[0])) counts_.netlink_sent += result;
        break;
      case SYS_recvmsg:
      case SYS_recvfrom:
      case SYS_read: {
        const uint64_t flags = call.number == SYS_recvmsg    ? arguments[2]
                               : call.number == SYS_recvfrom ? arguments[3]
                                                             : 0;
        if ((flags & MSG_PEEK) == 0 && IsNetlink(task, arguments[0])) {
          counts_.netlink_received += result;
        }
        break;
      }
      case SYS_recvmmsg:
        if (IsNetlink(task, arguments[0])) ReceivedMany(task, arguments[1], result);
        break;
      case SYS_setsockopt:
        if (IsXtables(arguments)) counts_.xtables_bytes += static_cast<int64_t>(arguments[4]);
        break;
      case SYS_getsockopt:
        if (IsXtables(arguments)) counts_.xtables_bytes += Peek<socklen_t>(task, arguments[4]);
        break;
      default:
        break;
    }
  }

  bool IsNetlink(pid_t task, uint64_t fd) const {
    return netlink_sockets_.contains(SocketName(task, fd));
  }

  static bool IsXtables(const std::array<uint64_t, 6>& arguments) {
    return (arguments[1] == SOL_IP || arguments[1] == IPPROTO_IPV6) &&
           arguments[2] >= kXtablesOptions;
  }

  template <typename T>
  static T Peek(pid_t task, uint64_t address) {
    T value = {};
    const iovec local = {.iov_base = &value, .iov_len = sizeof(value)};
    const iovec remote = {.iov_base = reinterpret_cast<void*>(address), .iov_len = sizeof(value)};
    process_vm_readv(task, &local, 1, &remote, 1, 0);
    return value;
  }

  void ReceivedMany(pid_t task, uint64_t headers, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t at = headers + static_cast<uint64_t>(i) * sizeof(mmsghdr);
      counts_.netlink_received += Peek<mmsghdr>(task, at).msg_len;
    }
  }

  const pid_t root_;
  const Counted counted_;
  std::set<std::string> netlink_sockets_;
  std::set<pid_t> seen_;
  std::set<pid_t> programs_;
  // They, and what they start.
  std::set<pid_t> of_programs_;
  std::map<pid_t, Call> calls_;
  CallCounts counts_;
};

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return kFailed;
}

}  // namespace

absl::StatusOr<CallCounts> TraceCalls(const std::function<absl::Status()>& work, Counted counted) {
  const pid_t child = fork();
  if (child < 0) return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    syscall(SYS_kill, getpid(), SIGSTOP);
    _exit(ExitCode(work()));
  }
  return Tracer(child, counted).Run();
}

}  // namespace kipt::testing
