// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/syscall_table.h
//
// The system calls of the agent, as a table: who needs them and with which arguments. Used by
// syscall_filter.cc.
//
// Names are the kernel's, of any machine: those that a machine does not have (open on arm64, mmap2
// on 64-bit machines) are skipped there. Names that are newer than this file belong here as soon as
// the C library makes such calls; EPERM, unlike ENOSYS, does not make it fall back.
#ifndef KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_
#define KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_

#include <seccomp.h>

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

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

// Calls that fail with ENOSYS, so that the C library makes an older one: their flags are in memory,
// where no filter can look. glibc then uses clone and openat. Separated by a space.
inline constexpr absl::string_view kSyscallsToReplace = "clone3 openat2";

// As libseccomp names machines: those for which the tests interpret the filter.
inline constexpr std::array<absl::string_view, 5> kSyscallTableMachines = {
    "x86_64", "aarch64", "arm", "ppc64le", "s390x"};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_
