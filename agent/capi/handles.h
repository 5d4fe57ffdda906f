// SPDX-License-Identifier: Apache-2.0
//
// Which handles of the C API exist. A handle is looked up before it is used, so that one that was
// freed, or belongs to another thread, is an error and not a crash.
#ifndef KIPT_AGENT_CAPI_HANDLES_H_
#define KIPT_AGENT_CAPI_HANDLES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "agent/capi/kube_iptables_agent.h"
#include "agent/node_agent.h"
#include "agent/process/files.h"
#include "agent/report/daemon_state.h"

// What a handle is.
struct kube_iptables_agent {
  kube_iptables_agent_handlers handlers = {};
  std::unique_ptr<kipt::agent::NodeAgent> agent;
  kipt::agent::RecentEvents recent = {};
  // An eventfd: readable where a wait is to end.
  kipt::agent::OwnedFd wake;
  // Something may be due, so the next dispatch does not wait.
  bool must_dispatch = true;
  // kube_iptables_agent_dispatch is on the stack.
  bool dispatching = false;
};

namespace kipt::agent {

// Safe for use by several threads at once.
class Handles {
 public:
  // The process' only table. Never destroyed, because threads may outlive main().
  static Handles& Of();

  // The calling thread becomes the owner.
  kube_iptables_agent* Add(std::unique_ptr<kube_iptables_agent> agent);
  // Only the owner's thread frees, so the handle stays good until it does.
  //
  // InvalidArgument: there is no such handle. FailedPrecondition: another thread owns it, or one of
  // a process that this one was forked from.
  absl::Status CheckOwned(const kube_iptables_agent* handle) const;
  // Nothing is freed meanwhile. InvalidArgument: there is no such handle. FailedPrecondition: of a
  // process that this one was forked from.
  absl::Status WithAny(kube_iptables_agent* handle,
                       absl::FunctionRef<void(kube_iptables_agent&)> work) const;
  // After CheckOwned.
  std::unique_ptr<kube_iptables_agent> Remove(kube_iptables_agent* handle);

 private:
  struct Owned {
    std::unique_ptr<kube_iptables_agent> agent;
    pid_t thread = 0;
    uint64_t forks = 0;
  };
  absl::Status CheckOfThisProcess(const kube_iptables_agent* handle) const;

  mutable std::mutex mutex_;
  std::unordered_map<const kube_iptables_agent*, Owned> handles_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CAPI_HANDLES_H_
