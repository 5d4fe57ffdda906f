// SPDX-License-Identifier: Apache-2.0
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

// Holds the lock as long as it lives; programs do not inherit it.
class XtablesLock {
 public:
  // None.
  XtablesLock() = default;
  explicit XtablesLock(OwnedFd locked) : locked_(std::move(locked)) {}
  XtablesLock(XtablesLock&&) = default;
  XtablesLock& operator=(XtablesLock&&) = default;
  // Closing is not enough: what a thread of a host program has forked meanwhile has it, too.
  ~XtablesLock();

  bool valid() const { return locked_.valid(); }

 private:
  OwnedFd locked_;
};

// Makes the file where it is missing, as iptables does.
//
// DeadlineExceeded: another process held it for the whole of `wait`; the message names the process
// if it is visible. FailedPrecondition: the file cannot be opened or made (its directory is
// missing, a directory is there, the file system is read-only); the message says what to do.
// PermissionDenied: not allowed to open it.
absl::StatusOr<XtablesLock> AcquireXtablesLock(const std::string& path, absl::Duration wait);

// "held by process 4711 (kube-proxy)", or several that share it. /proc/locks shows no process of an
// outer PID namespace, and may number the device of an overlay or btrfs differently from stat(2):
// then "no process that can be seen from here holds it".
std::string DescribeXtablesLockHolder(const std::string& path);

// 0.5 to 1.5 of `mean`, so that processes that wait for the same thing do not retry together.
absl::Duration Jittered(absl::Duration mean);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_XTABLES_LOCK_H_
