// SPDX-License-Identifier: Apache-2.0
//
// One network namespace that this node agent manages, and its log lines.
#ifndef NODE_AGENT_SERVED_NAMESPACE_H_
#define NODE_AGENT_SERVED_NAMESPACE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/node_agent.h"
#include "settings.h"

namespace node_agent {

class ServedNamespace {
 public:
  // The rules are put in place by the first Dispatch.
  static absl::StatusOr<std::unique_ptr<ServedNamespace>> Create(const Serving& serving,
                                                                 const NodeSettings& settings);
  ServedNamespace(const ServedNamespace&) = delete;
  ServedNamespace& operator=(const ServedNamespace&) = delete;

  // Settings that are wrong or cannot be applied are logged; the current ones stay.
  void Apply(const NodeSettings& settings);

  // As the agent's.
  int fd() const { return agent_->fd(); }
  absl::Status Dispatch() { return agent_->Dispatch(); }

 private:
  explicit ServedNamespace(Serving serving) : serving_(std::move(serving)) {}
  void LogRound(const kipt::agent::Event& round) const;

  const Serving serving_;
  std::unique_ptr<kipt::agent::NodeAgent> agent_;
};

}  // namespace node_agent

#endif  // NODE_AGENT_SERVED_NAMESPACE_H_
