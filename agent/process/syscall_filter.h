// SPDX-License-Identifier: Apache-2.0
//
// Permanently takes away, from all threads, every system call that the agent does not make
// (seccomp(2)), so that an attacker who exploits a fault in it can call little.
#ifndef KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
#define KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

// The machines, in libseccomp's names, for which the tests interpret the filter.
inline constexpr std::array<absl::string_view, 5> kSyscallTableMachines = {
    "x86_64", "aarch64", "arm", "ppc64le", "s390x"};

struct SyscallNeeds {
  // Programs of iptables-legacy may be run; they inherit the filter. Without it, no program can be
  // executed, no process or executable memory made, no file made or opened for writing, and no
  // other process signalled.
  bool programs = false;
  // For `ip rule`, tc filters and WireGuard: sockets of NETLINK_ROUTE and NETLINK_GENERIC. With
  // CAP_NET_ADMIN they can also change routes and interfaces.
  bool routes = false;
};

// Makes every call that is not in the table fail with EPERM (ENOSYS, if glibc has a replacement) in
// all threads of this process, now and later, and in the programs that it runs. Sets no_new_privs.
//
// Every error leaves everything unchanged. Unimplemented: the kernel has no seccomp filters, the
// table was not tested for this machine, or this build has a sanitizer. Internal: anything else.
absl::Status InstallSyscallFilter(const SyscallNeeds& needs);

// A scmp_filter_ctx, for seccomp_load(3) and seccomp_export_bpf(3).
using SyscallFilter = std::unique_ptr<void, void (*)(void*)>;

// The filter for the process number `process` on `machine`, one of kSyscallTableMachines.
absl::StatusOr<SyscallFilter> MakeSyscallFilter(absl::string_view machine,
                                                const SyscallNeeds& needs, int process);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
