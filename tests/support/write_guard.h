// SPDX-License-Identifier: Apache-2.0
//
// What a BPF LSM such as Azure's iptables guard does, by seccomp: the agent and its programs have
// every capability, and yet cannot write rules (EPERM). All other programs can.
#ifndef KIPT_TESTS_SUPPORT_WRITE_GUARD_H_
#define KIPT_TESTS_SUPPORT_WRITE_GUARD_H_

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "gtest/gtest.h"
#include "tests/support/failing_call.h"

namespace kipt::testing {

struct WriteGuard {
  std::atomic<bool> refuses = true;
  // Also what only asks nf_tables.
  std::atomic<bool> reads_too = false;
  std::atomic<int> error = EPERM;
  // How often it has refused.
  std::atomic<int> refused = 0;
};

namespace write_guard {

constexpr uint32_t kReplace = 64;  // IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE

inline std::string Line(const std::string& path, const std::string& prefix) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, prefix)) return line.substr(prefix.size());
  }
  return "";
}

// The agent, or a program whose parent it is.
inline bool IsGuarded(uint32_t thread) {
  const std::string status = absl::StrCat("/proc/", thread, "/status");
  const std::string parent = absl::StrCat("/proc/", Line(status, "PPid:\t"), "/comm");
  // All threads of the agent but its server's are named so.
  return absl::StartsWith(Line(status, "Name:\t"), "kube-iptables-a") ||
         absl::StartsWith(Line(parent, ""), "kube-iptables-a");
}

// Whether one of the messages makes a rule.
inline bool MakesRule(uint32_t thread, uint64_t address, size_t size) {
  std::vector<char> bytes(size);
  const agent::OwnedFd memory(open(absl::StrCat("/proc/", thread, "/mem").c_str(), O_RDONLY));
  if (pread(memory.get(), bytes.data(), size, static_cast<off_t>(address)) !=
      static_cast<ssize_t>(size)) {
    return true;
  }
  for (size_t at = 0; at + sizeof(nlmsghdr) <= size;) {
    nlmsghdr header;
    std::memcpy(&header, &bytes[at], sizeof(header));
    if (header.nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE)) return true;
    if (header.nlmsg_len < sizeof(header)) return false;
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return false;
}

inline bool Refuses(const WriteGuard& guard, const seccomp_notif& call) {
  if (!guard.refuses || !IsGuarded(call.pid)) return false;
  return call.data.nr == SYS_setsockopt || guard.reads_too ||
         MakesRule(call.pid, call.data.args[1], call.data.args[2]);
}

inline int Install() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 2),
      // Only to an address of netlink's.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOfArgument(5)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(sockaddr_nl), 3, 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOfArgument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kReplace, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

}  // namespace write_guard

// Runs `body` on a thread of its own; what it starts is guarded as long as it runs.
inline void WithWriteGuard(WriteGuard& guard, const std::function<void()>& body) {
  std::atomic<int> listener = -2;
  std::atomic<bool> ended = false;
  std::thread guarded([&] {
    listener = write_guard::Install();
    if (listener >= 0) body();
    ended = true;
  });
  while (listener == -2) std::this_thread::yield();
  EXPECT_GE(listener, 0) << "a filter needs CAP_SYS_ADMIN";
  while (!ended && listener >= 0) {
    pollfd readable = {.fd = listener, .events = POLLIN, .revents = 0};
    seccomp_notif call = {};
    if (poll(&readable, 1, 50) <= 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
      continue;
    }
    const bool refused = write_guard::Refuses(guard, call);
    if (refused) ++guard.refused;
    seccomp_notif_resp answer = {.id = call.id, .val = 0, .error = 0, .flags = 0};
    answer.error = refused ? -guard.error : 0;
    answer.flags = refused ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
  guarded.join();
  close(listener);
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_WRITE_GUARD_H_
