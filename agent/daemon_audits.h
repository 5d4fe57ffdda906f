// SPDX-License-Identifier: Apache-2.0
//
// The daemon's audits of its node: what they read, and where their results go.
#ifndef KIPT_AGENT_DAEMON_AUDITS_H_
#define KIPT_AGENT_DAEMON_AUDITS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/audit/node_audit.h"
#include "agent/config/config.h"
#include "agent/endpoints/audit_watch.h"
#include "agent/endpoints/endpoints.h"
#include "agent/endpoints/metrics.h"
#include "agent/loop/event_loop.h"

namespace kipt::agent {

// Made, used and destroyed on the loop's thread. What is passed by reference must outlive it.
class DaemonAudits {
 public:
  // Call it while the process may still see which files are the host's.
  DaemonAudits(const std::optional<std::string>& host_root, Metrics& metrics);

  // Starts threads. A failure is logged and counted as that of an audit.
  void Start(EventLoop& loop, Endpoints& endpoints, const Config& config);
  void Set(const Config& config);
  // AuditWatch::End.
  bool End(absl::Duration patience);

 private:
  struct Sources;

  void OnDone(NodeAudit audit);
  void OnFailed(const absl::Status& status);
  void Show(NodeAudit audit);

  // Audits of a program that hangs may outlive this.
  const std::shared_ptr<const Sources> sources_;
  Metrics& metrics_;
  Endpoints* endpoints_ = nullptr;
  std::unique_ptr<AuditWatch> watch_;
  std::shared_ptr<const NodeAudit> shown_ = std::make_shared<const NodeAudit>();
  // As last logged.
  std::string problem_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DAEMON_AUDITS_H_
