// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/netns_guard.h
#ifndef KIPT_AGENT_PROCESS_NETNS_GUARD_H_
#define KIPT_AGENT_PROCESS_NETNS_GUARD_H_

#include "absl/status/status.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

// Remembers the calling thread's network namespace. A program is started in that of the thread that
// starts it, so whoever is to stay in one namespace has to be called from there.
class NetnsGuard {
 public:
  NetnsGuard();

  // FailedPrecondition: the calling thread is in another one now. Unavailable: that cannot be seen.
  absl::Status Check() const;

 private:
  // Keeps the namespace, and so its number from being given again.
  OwnedFd fd_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_NETNS_GUARD_H_
