// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/syscall_table.h
//
// The system calls of the agent, as a table: who needs them and with which arguments. Used by
// syscall_filter.cc.
//
// Names are the kernel's, of any machine: those that this machine has not (open, on arm64) are
// skipped. Names that are newer than this file belong here as soon as the C library makes such
// calls; EPERM, unlike ENOSYS, does not make it fall back.
#ifndef KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_
#define KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_

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
};

// argument & mask == value, on all 64 bits of the argument.
struct ArgumentCondition {
  unsigned int argument = 0;  // from 0
  uint64_t mask = 0;
  uint64_t value = 0;
};

struct SyscallGroup {
  SyscallUser user = SyscallUser::kAlways;
  // Separated by spaces.
  absl::string_view names;
  // All of them at once. Several groups may name the same call: one that holds is enough.
  absl::Span<const ArgumentCondition> conditions = {};
};

extern const absl::Span<const SyscallGroup> kSyscallTable;

// Calls that fail with ENOSYS, so that the C library makes an older one.
extern const absl::Span<const absl::string_view> kSyscallsToReplace;

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SYSCALL_TABLE_H_
