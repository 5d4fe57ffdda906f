// SPDX-License-Identifier: Apache-2.0
#include "agent/confinement.h"

#include <glog/logging.h>
#include <linux/capability.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "agent/process/privileges.h"
#include "agent/process/syscall_filter.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

// A kernel without it is no reason to warn at each command.
void GoOnWithout(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return;
  if (absl::IsUnimplemented(status)) {
    VLOG(1) << "Going on without " << what << ": " << status.message();
  } else {
    LOG(WARNING) << "Going on without " << what << ": " << status.message();
  }
}

bool HasLegacyTables(const ModeSources& sources) {
  for (const netlink::Family family : netlink::kFamilies) {
    const absl::StatusOr<std::vector<std::string>> names =
        IptablesLegacyTableNames(family, sources);
    if (names.ok() ? !names->empty() : !absl::IsUnavailable(names.status())) return true;
  }
  return false;
}

// Landlock hides other processes' roots, as it would let their files be reached.
bool IsInAnotherProcess(const ModeSources& sources) {
  return absl::StartsWith(sources.host_root.directory, "/proc/");
}

}  // namespace

absl::Status ConfineToReading(const ReadingNeeds& needs, const ModeSources& sources) {
  const bool programs = needs.programs || needs.all_netns || HasLegacyTables(sources);
  const bool other_roots = needs.all_netns || IsInAnotherProcess(sources);
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
  if (absl::Status status = LimitCapabilities({}, /*for_programs=*/false); !status.ok()) {
    return status;
  }
  GoOnWithout("Landlock", ForbidFileWrites(""));
  GoOnWithout("a system call filter", InstallSyscallFilter({}));
  return absl::OkStatus();
}

}  // namespace kipt::agent
