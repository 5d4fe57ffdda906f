// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/syscall_filter.h
//
// Takes away, for good and from all threads, every system call that the agent does not make
// (seccomp(2)), so that a fault in it gives an attacker little to call.
#ifndef KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
#define KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_

#include <linux/filter.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

struct SyscallNeeds {
  // For iptables-legacy, whose programs inherit the filter; the table then has what their loader,
  // their C library and they themselves need. Without it no program can be executed, no process be
  // made, no memory be made executable, no file be made or opened for writing, and no signal be
  // sent to another process.
  bool programs = false;
  // For `ip rule`: a socket of NETLINK_ROUTE. With CAP_NET_ADMIN it can change routes, too.
  bool routes = false;
};

// From now on a call that is not in the table (syscall_table.h) fails with EPERM in every thread of
// this process, those to come included, and in the programs that it runs. A call that glibc itself
// can do without fails with ENOSYS instead, so that glibc does.
//
// Sets no_new_privs, if it is not set yet.
//
// Unimplemented: this kernel has no seccomp filters; or the table was not tested for this machine;
// or this is a build with a sanitizer, whose run time makes calls of its own. Nothing was changed,
// and the agent can go on without. Internal: anything else; nothing was changed.
absl::Status InstallSyscallFilter(const SyscallNeeds& needs);

// The same filter for `machine`, one of kSyscallTableMachines, for a process with the number
// `process`: what the kernel would be given (linux/filter.h), in the byte order of that machine.
// For the tests. Internal: it cannot be made.
absl::StatusOr<std::vector<sock_filter>> SyscallFilterFor(absl::string_view machine,
                                                          const SyscallNeeds& needs, int process);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
