// SPDX-License-Identifier: Apache-2.0
#include "agent/process/syscall_filter.h"

#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/process/files.h"
#include "agent/process/privileges.h"
#include "agent/process/syscall_table.h"

namespace kipt::agent {
namespace {

// scmp_filter_ctx is a void*.
using Filter = std::unique_ptr<void, decltype([](void* filter) { seccomp_release(filter); })>;

// The call that only reaches this process, by its first argument, where no programs may be run.
constexpr absl::string_view kOnOwnProcess = "tgkill";

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

// For whom a filter is.
struct Target {
  uint32_t machine = 0;  // SCMP_ARCH_*
  SyscallNeeds needs;
  int process = 0;
};

// 0: no such machine.
uint32_t MachineOf(absl::string_view name) {
  return seccomp_arch_resolve_name(std::string(name).c_str());
}

// Whether the machine has the call itself, or as a part of socketcall(2), whose arguments are in
// memory: libseccomp then lets it through whatever they are.
bool Has(uint32_t machine, const std::string& name) {
  constexpr int kFirstOfSocketcall = -120;
  constexpr int kLastOfSocketcall = -100;
  const int number = seccomp_syscall_resolve_name_arch(machine, name.c_str());
  return number >= 0 || (number >= kFirstOfSocketcall && number <= kLastOfSocketcall);
}

absl::Status AddRule(scmp_filter_ctx filter, const Target& target, uint32_t action,
                     absl::string_view call, absl::Span<const scmp_arg_cmp> conditions) {
  const std::string name(call);
  // The number here stands for the name; libseccomp finds the other machine's.
  const int number = seccomp_syscall_resolve_name(name.c_str());
  if (number == __NR_SCMP_ERROR) {
    return absl::InternalError(absl::StrCat("the system call filter: no machine has ", name));
  }
  if (!Has(target.machine, name)) return absl::OkStatus();
  const int refused = seccomp_rule_add_array(
      filter, action, number, static_cast<unsigned int>(conditions.size()), conditions.data());
  return refused == 0 ? absl::OkStatus() : Failure(name, -refused);
}

bool IsFor(const SyscallGroup& group, const Target& target) {
  const SyscallMachines others = target.machine == SCMP_ARCH_S390X ? SyscallMachines::kAllButS390x
                                                                   : SyscallMachines::kOnlyS390x;
  if (group.machines == others) return false;
  const bool programs = target.needs.programs;
  return group.user == SyscallUser::kAlways ||
         group.user == (programs ? SyscallUser::kPrograms : SyscallUser::kWithoutPrograms) ||
         (group.user == SyscallUser::kRoutes && target.needs.routes);
}

absl::Status Fill(scmp_filter_ctx filter, const Target& target) {
  absl::Status status;
  const auto add = [&](absl::string_view names, uint32_t action,
                       absl::Span<const scmp_arg_cmp> conditions) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      if (status.ok()) status = AddRule(filter, target, action, name, conditions);
    }
  };
  for (const SyscallGroup& group : kSyscallTable) {
    if (IsFor(group, target)) add(group.names, SCMP_ACT_ALLOW, group.conditions);
  }
  if (!target.needs.programs) {
    const scmp_arg_cmp own = {.arg = 0,
                              .op = SCMP_CMP_MASKED_EQ,
                              .datum_a = 0xffff'ffff,
                              .datum_b = static_cast<uint64_t>(target.process)};
    add(kOnOwnProcess, SCMP_ACT_ALLOW, {&own, 1});
  }
  add(kSyscallsToReplace, SCMP_ACT_ERRNO(ENOSYS), {});
  return status;
}

absl::StatusOr<Filter> MakeFilter(const Target& target) {
  Filter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (filter == nullptr) return Failure("making it", ENOMEM);
  if (target.machine != seccomp_arch_native()) {
    // In this order: one filter cannot be for machines of both byte orders.
    int refused = seccomp_arch_remove(filter.get(), SCMP_ARCH_NATIVE);
    if (refused == 0) refused = seccomp_arch_add(filter.get(), target.machine);
    if (refused != 0) return Failure("its machine", -refused);
  }
  if (absl::Status status = Fill(filter.get(), target); !status.ok()) return status;
  return filter;
}

absl::Status CheckMachine() {
  const bool tested =
      std::any_of(kSyscallTableMachines.begin(), kSyscallTableMachines.end(),
                  [](absl::string_view name) { return MachineOf(name) == seccomp_arch_native(); });
  if (tested) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the table of system calls was tested for ",
                                               absl::StrJoin(kSyscallTableMachines, ", "),
                                               " and not for this machine"));
}

}  // namespace

absl::Status InstallSyscallFilter(const SyscallNeeds& needs) {
  if (kBuiltWithASanitizer) {
    return absl::UnimplementedError(
        "built with a sanitizer, whose run time makes system calls of its own");
  }
  if (absl::Status status = CheckMachine(); !status.ok()) return status;
  if (absl::Status status = CheckKernel(); !status.ok()) return status;
  const absl::StatusOr<Filter> filter = MakeFilter({seccomp_arch_native(), needs, getpid()});
  if (!filter.ok()) return filter.status();
  // All threads at once, or none.
  if (const int refused = seccomp_attr_set(filter->get(), SCMP_FLTATR_CTL_TSYNC, 1); refused != 0) {
    return Failure("TSYNC", -refused);
  }
  const int refused = seccomp_load(filter->get());
  return refused == 0 ? absl::OkStatus() : Failure("loading it", -refused);
}

absl::StatusOr<std::vector<sock_filter>> SyscallFilterFor(absl::string_view machine,
                                                          const SyscallNeeds& needs, int process) {
  const absl::StatusOr<Filter> filter = MakeFilter({MachineOf(machine), needs, process});
  if (!filter.ok()) return filter.status();
  const OwnedFd file(memfd_create("filter", MFD_CLOEXEC));
  if (!file.valid()) return Failure("a file in memory", errno);
  if (const int refused = seccomp_export_bpf(filter->get(), file.get()); refused != 0) {
    return Failure("exporting it", -refused);
  }
  const off_t size = lseek(file.get(), 0, SEEK_END);
  std::vector<sock_filter> program(static_cast<size_t>(size) / sizeof(sock_filter));
  if (pread(file.get(), program.data(), static_cast<size_t>(size), 0) != size) {
    return Failure("reading it", errno);
  }
  return program;
}

}  // namespace kipt::agent
