// SPDX-License-Identifier: Apache-2.0
//
// The host's own event loop: epoll, one timer, signals. It does not depend on the library.
#ifndef NODE_AGENT_HOST_LOOP_H_
#define NODE_AGENT_HOST_LOOP_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace node_agent {

// Used on one thread. Handlers run on it, one at a time.
class HostLoop {
 public:
  static absl::StatusOr<std::unique_ptr<HostLoop>> Create();
  ~HostLoop();
  HostLoop(const HostLoop&) = delete;
  HostLoop& operator=(const HostLoop&) = delete;

  // `handler` runs whenever `fd` is readable. The descriptor stays the caller's.
  absl::Status WatchReadable(int fd, std::function<void()> handler);
  // `handler` runs every `period`.
  absl::Status Every(absl::Duration period, std::function<void()> handler);
  // `handler` runs with each of `signals`, which are blocked from now on.
  absl::Status OnSignals(absl::Span<const int> signals, std::function<void(int)> handler);

  // Until Stop().
  absl::Status Run();
  void Stop() { stopped_ = true; }

 private:
  explicit HostLoop(int epoll) : epoll_(epoll) {}
  // Closes `fd` with the loop.
  absl::Status Own(int fd, std::function<void()> handler);

  int epoll_;
  bool stopped_ = false;
  std::map<int, std::function<void()>> handlers_;
  std::vector<int> owned_;
};

}  // namespace node_agent

#endif  // NODE_AGENT_HOST_LOOP_H_
