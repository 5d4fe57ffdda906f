// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/xtables_lock.h
//
// The lock of every program that writes iptables-legacy tables: flock(2) on one file,
// /run/xtables.lock. The iptables-legacy programs take it for each table they change (iptables 1.8
// xshared.c, xtables_lock); iptables-legacy-save and all of iptables-nft do not. Not installed.
#ifndef KIPT_AGENT_XTABLES_XTABLES_LOCK_H_
#define KIPT_AGENT_XTABLES_XTABLES_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Held as long as this lives. Programs started meanwhile do not inherit it. Move-only.
class XtablesLock {
 public:
  // Takes the lock, making the file where it is missing, as iptables does.
  //
  // DeadlineExceeded: another process held it for the whole of `wait`; the message names the
  // process, where it can be seen. FailedPrecondition: the file cannot be had (its directory is
  // missing, a directory is there, the file system is read-only); the message says what to do.
  // PermissionDenied: not allowed to open it.
  static absl::StatusOr<XtablesLock> Acquire(const std::string& path, absl::Duration wait);

 private:
  explicit XtablesLock(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

// "held by process 4711 (kube-proxy)"; several, where several share it. From /proc/locks, which
// shows only processes of our PID namespace and those below it, and may number the device of an
// overlay or btrfs differently from stat(2): "nobody who can be seen from here holds it".
std::string DescribeXtablesLockHolder(const std::string& path);

// 0.5 to 1.5 of `mean`, so that those who wait for the same thing do not come back together.
absl::Duration Jittered(absl::Duration mean);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_XTABLES_LOCK_H_
