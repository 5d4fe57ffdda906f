// SPDX-License-Identifier: Apache-2.0
//
// Notices that programs use xtables.lock. Each that changes tables with iptables 1.6.2 or later
// opens it before and closes it afterwards, as readers do, and inotify(7) reports that. One lock
// serves all network namespaces.
//
// Not seen: programs that take no lock or another one (an older iptables, a container with its own
// /run, XTABLES_LOCKFILE), and a lock file that is mounted over the watched one later. Not
// installed.
#ifndef KIPT_AGENT_XTABLES_XTABLES_LOCK_WATCH_H_
#define KIPT_AGENT_XTABLES_XTABLES_LOCK_WATCH_H_

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Move-only. Not safe for use by several threads at once.
class XtablesLockWatch {
 public:
  struct Use {
    // A program closed the lock, or made it anew. The kernel reports that before another program
    // gets the lock.
    bool closed = false;
    // How often the kernel dropped events.
    uint64_t lost = 0;

    bool any() const { return closed || lost != 0; }
  };

  // NotFound: neither the lock file nor its directory exists. PermissionDenied: the lock file
  // cannot be read. ResourceExhausted: no descriptors, or too many inotify instances or watches.
  static absl::StatusOr<XtablesLockWatch> Start(const std::filesystem::path& lock_path);

  // Readable when Take has something to report.
  int fd() const { return inotify_.fd(); }

  // What happened since the last call, without blocking. What is at the path now is watched when
  // this returns. Errors as Start; after one the watch is useless.
  absl::StatusOr<Use> Take();

 private:
  XtablesLockWatch(const std::filesystem::path& lock_path, Inotify inotify)
      // A path without a directory is below the current one.
      : lock_path_("." / lock_path), inotify_(std::move(inotify)) {}

  bool IsAboutTheLock(const inotify_event& event);
  // Watches what is at the two paths now. Where that has not changed, nothing changes.
  absl::Status Arm();

  std::filesystem::path lock_path_;
  Inotify inotify_;
  std::optional<int> directory_;
  std::vector<int> files_;  // newest last
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_XTABLES_LOCK_WATCH_H_
