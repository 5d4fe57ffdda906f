// SPDX-License-Identifier: Apache-2.0
#include "agent/confinement.h"

#include <glog/logging.h>
#include <linux/capability.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "agent/process/own_process.h"
#include "agent/process/syscall_filter.h"
#include "agent/xtables/iptables_legacy_backend.h"

namespace kipt::agent {
namespace {

// An old kernel is no reason to warn at each command.
void GoOnWithout(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return;
  const bool old_kernel = absl::IsUnimplemented(status);
  LOG_IF(WARNING, !old_kernel) << "Continuing without " << what << ": " << status.message();
  VLOG_IF(1, old_kernel) << "Continuing without " << what << ": " << status.message();
}

}  // namespace

absl::Status ConfineToReading(const ReadingNeeds& needs, const ModeSources& sources) {
  std::vector<absl::Status> unknown;
  const bool programs = needs.programs || needs.all_netns ||
                        HasIptablesLegacyTables(sources, unknown) || !unknown.empty();
  // Landlock would hide other processes' roots.
  const bool other_roots =
      needs.all_netns || absl::StartsWith(sources.host_root.directory, "/proc/");
  std::vector<unsigned int> kept = {CAP_NET_ADMIN};
  if (programs) kept.push_back(CAP_NET_RAW);
  if (other_roots) kept.push_back(CAP_SYS_PTRACE);
  // CAP_SETPCAP so that ConfineToComputing can empty the bounding set.
  if (needs.all_netns) kept.insert(kept.end(), {CAP_SYS_ADMIN, CAP_SETPCAP});
  if (absl::Status status = LimitCapabilities(kept, programs); !status.ok()) return status;
  if (!other_roots) {
    GoOnWithout("Landlock", ForbidFileWrites(programs ? IptablesLegacyOptions().lock_path : ""));
  }
  if (!needs.all_netns) {
    GoOnWithout("a system call filter",
                InstallSyscallFilter({.programs = programs, .routes = needs.routes}));
  }
  return absl::OkStatus();
}

absl::Status ConfineToComputing() {
  absl::Status status = LimitCapabilities({}, /*for_programs=*/false);
  if (!status.ok()) return status;
  GoOnWithout("Landlock", ForbidFileWrites(""));
  GoOnWithout("a system call filter", InstallSyscallFilter({}));
  return absl::OkStatus();
}

}  // namespace kipt::agent
