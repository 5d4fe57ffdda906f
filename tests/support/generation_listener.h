// SPDX-License-Identifier: Apache-2.0
//
// Counts the nf_tables transactions of a network namespace, with the names of their programs.
#ifndef KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_
#define KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "netlink/backend.h"

namespace kipt::testing {

class GenerationListener {
 public:
  // Listens in the calling thread's network namespace from now on.
  static absl::StatusOr<GenerationListener> Create() {
    auto backend = netlink::NewNftBackend();
    if (!backend.ok()) return backend.status();
    auto monitor = (*backend)->Watch(netlink::WatchMode::kEvents);
    if (!monitor.ok()) return monitor.status();
    return GenerationListener(*std::move(backend), *std::move(monitor));
  }

  // Since the last call. The kernel reports a transaction before the writer's send returns.
  absl::StatusOr<netlink::RulesetChanges> Drain() {
    auto changes = monitor_->Drain();
    if (changes.ok() && changes->lost > 0) return absl::ResourceExhaustedError("events were lost");
    return changes;
  }

  int fd() const { return monitor_->fd(); }

 private:
  GenerationListener(std::unique_ptr<netlink::Backend> backend,
                     std::unique_ptr<netlink::Monitor> monitor)
      : backend_(std::move(backend)), monitor_(std::move(monitor)) {}

  std::unique_ptr<netlink::Backend> backend_;
  std::unique_ptr<netlink::Monitor> monitor_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_
