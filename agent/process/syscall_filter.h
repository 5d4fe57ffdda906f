// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/syscall_filter.h
//
// Takes away, for good and from all threads, every system call that the agent does not make
// (seccomp(2)), so that a fault in it gives an attacker little to call.
#ifndef KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
#define KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_

#include <seccomp.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

// The table of the agent's system calls: who needs them and with which arguments.
//
// Names are the kernel's, of any machine: those that a machine does not have (open on arm64, mmap2
// on 64-bit machines) are skipped there. Names that are newer than this file belong here as soon as
// the C library makes such calls; EPERM, unlike ENOSYS, does not make it fall back.
enum class SyscallUser : uint8_t {
  kAlways,
  // Only where programs may be run: by them, or to start them.
  kPrograms,
  // Only where no programs may be run.
  kWithoutPrograms,
  // Only where the kernel's routing rules are read.
  kRoutes,
};

// s390x has clone's flags in the second argument, and mmap's arguments in memory.
enum class SyscallMachines : uint8_t { kAll, kAllButS390x, kOnlyS390x };

struct SyscallGroup {
  SyscallUser user = SyscallUser::kAlways;
  // Separated by spaces.
  absl::string_view names;
  // All of them at once, on all 64 bits of an argument (32 on a 32-bit machine). Several groups may
  // name the same call: one that holds is enough.
  absl::Span<const scmp_arg_cmp> conditions = {};
  SyscallMachines machines = SyscallMachines::kAll;
};

extern const absl::Span<const SyscallGroup> kSyscallTable;

// As libseccomp names machines: those for which the tests interpret the filter.
inline constexpr std::array<absl::string_view, 5> kSyscallTableMachines = {
    "x86_64", "aarch64", "arm", "ppc64le", "s390x"};

struct SyscallNeeds {
  // For iptables-legacy, whose programs inherit the filter; the table then has what their loader,
  // their C library and they themselves need. Without it no program can be executed, no process be
  // made, no memory be made executable, no file be made or opened for writing, and no signal be
  // sent to another process.
  bool programs = false;
  // For `ip rule`: a socket of NETLINK_ROUTE. With CAP_NET_ADMIN it can change routes, too.
  bool routes = false;
};

// From now on a call that is not in the table fails with EPERM in every thread of
// this process, those to come included, and in the programs that it runs. A call that glibc itself
// can do without fails with ENOSYS instead, so that glibc does.
//
// Sets no_new_privs, if it is not set yet.
//
// Unimplemented: this kernel has no seccomp filters; or the table was not tested for this machine;
// or this is a build with a sanitizer, whose run time makes calls of its own. Nothing was changed,
// and the agent can go on without. Internal: anything else; nothing was changed.
absl::Status InstallSyscallFilter(const SyscallNeeds& needs);

// A scmp_filter_ctx: what seccomp_load(3) and seccomp_export_bpf(3) take.
using SyscallFilter = std::unique_ptr<void, void (*)(void*)>;

// What is installed, for `machine`, one of kSyscallTableMachines, and for a process with the number
// `process`. Internal: it cannot be made.
absl::StatusOr<SyscallFilter> MakeSyscallFilter(absl::string_view machine,
                                                const SyscallNeeds& needs, int process);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SYSCALL_FILTER_H_
