// SPDX-License-Identifier: Apache-2.0
#include "agent/capi/handles.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/fork_count.h"

namespace kipt::agent {
namespace {

absl::Status NoSuchAgent() {
  return absl::InvalidArgumentError(
      "no such agent: the handle is NULL, was freed, or is none that "
      "kube_iptables_agent_create returned");
}

}  // namespace

Handles& Handles::Of() {
  static Handles& handles = *new Handles();
  // In a child the thread that might hold the lock does not exist.
  const auto unlock = [] { handles.mutex_.unlock(); };
  [[maybe_unused]] static const int watched =
      pthread_atfork([] { handles.mutex_.lock(); }, unlock, unlock);
  return handles;
}

kube_iptables_agent* Handles::Add(std::unique_ptr<kube_iptables_agent> agent) {
  kube_iptables_agent* const handle = agent.get();
  const std::lock_guard lock(mutex_);
  handles_[handle] = {.agent = std::move(agent), .thread = gettid(), .forks = netlink::ForkCount()};
  return handle;
}

absl::Status Handles::CheckOwned(const kube_iptables_agent* handle) const {
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckOfThisProcess(handle); !status.ok()) return status;
  const Owned& owned = handles_.at(handle);
  if (owned.thread == gettid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the agent belongs to thread ", owned.thread,
                                                    ", and this is thread ", gettid(),
                                                    ": call it from the thread that created it"));
}

absl::Status Handles::CheckOfThisProcess(const kube_iptables_agent* handle) const {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return NoSuchAgent();
  if (found->second.forks == netlink::ForkCount()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the agent belongs to the process that this one was forked from");
}

absl::Status Handles::WithAny(kube_iptables_agent* handle,
                              absl::FunctionRef<void(kube_iptables_agent&)> work) const {
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckOfThisProcess(handle); !status.ok()) return status;
  work(*handle);
  return absl::OkStatus();
}

std::unique_ptr<kube_iptables_agent> Handles::Remove(kube_iptables_agent* handle) {
  const std::lock_guard lock(mutex_);
  auto node = handles_.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped().agent);
}

}  // namespace kipt::agent
