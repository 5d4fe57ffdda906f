// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_filter.h"

#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/process/sanitizer.h"
#include "agent/process/syscall_table.h"

namespace kipt::agent {
namespace {

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};
// scmp_filter_ctx is a void*.
using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, Release>;

absl::Status Failure(absl::string_view step, int error_number) {
  return absl::InternalError(absl::StrCat("the system call filter: ", step, ": ",
                                          std::generic_category().message(error_number)));
}

// A filter that is nowhere is refused for its address by a kernel that knows filters.
absl::Status CheckKernel() {
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nullptr) == 0 || errno == EFAULT) {
    return absl::OkStatus();
  }
  // EPERM: of a container's own filter.
  return absl::UnimplementedError(
      absl::StrCat("this kernel, or the container, has no system call filters (seccomp): ",
                   std::generic_category().message(errno)));
}

std::vector<scmp_arg_cmp> Comparisons(absl::Span<const ArgumentCondition> conditions) {
  std::vector<scmp_arg_cmp> comparisons;
  for (const ArgumentCondition& condition : conditions) {
    comparisons.push_back({.arg = condition.argument,
                           .op = SCMP_CMP_MASKED_EQ,
                           .datum_a = condition.mask,
                           .datum_b = condition.value});
  }
  return comparisons;
}

absl::Status AddRule(scmp_filter_ctx filter, uint32_t action, absl::string_view name,
                     const std::vector<scmp_arg_cmp>& comparisons) {
  const int number = seccomp_syscall_resolve_name(std::string(name).c_str());
  if (number == __NR_SCMP_ERROR) {
    return absl::InternalError(absl::StrCat("the system call filter: no machine has ", name));
  }
  // Below 0: a call of other machines.
  if (number < 0) return absl::OkStatus();
  const int refused = seccomp_rule_add_array(
      filter, action, number, static_cast<unsigned int>(comparisons.size()), comparisons.data());
  return refused == 0 ? absl::OkStatus() : Failure(name, -refused);
}

absl::Status Fill(scmp_filter_ctx filter, bool may_run_programs) {
  const SyscallUser other =
      may_run_programs ? SyscallUser::kWithoutPrograms : SyscallUser::kPrograms;
  absl::Status status;
  for (const SyscallGroup& group : kSyscallTable) {
    if (group.user == other) continue;
    const std::vector<scmp_arg_cmp> comparisons = Comparisons(group.conditions);
    for (const absl::string_view name : absl::StrSplit(group.names, ' ')) {
      if (status.ok()) status = AddRule(filter, SCMP_ACT_ALLOW, name, comparisons);
    }
  }
  for (const absl::string_view name : kSyscallsToReplace) {
    if (status.ok()) status = AddRule(filter, SCMP_ACT_ERRNO(ENOSYS), name, {});
  }
  return status;
}

}  // namespace

absl::Status InstallSyscallFilter(bool may_run_programs) {
  if (kBuiltWithASanitizer) {
    return absl::UnimplementedError(
        "built with a sanitizer, whose run time makes system calls of its own");
  }
  if (absl::Status status = CheckKernel(); !status.ok()) return status;
  const Filter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (filter == nullptr) return Failure("making it", ENOMEM);
  // All threads at once, or none.
  if (const int refused = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1); refused != 0) {
    return Failure("TSYNC", -refused);
  }
  if (absl::Status status = Fill(filter.get(), may_run_programs); !status.ok()) return status;
  const int refused = seccomp_load(filter.get());
  return refused == 0 ? absl::OkStatus() : Failure("loading it", -refused);
}

}  // namespace kipt::agent
