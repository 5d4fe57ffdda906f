// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon_audits.h"

#include <glog/logging.h>

#include <functional>
#include <utility>

#include "agent/detect/host_files.h"
#include "agent/detect/mode_evidence.h"
#include "agent/process/command.h"
#include "agent/round_log.h"

namespace kipt::agent {

// What an audit reads, in this process' network namespace.
struct DaemonAudits::Sources {
  explicit Sources(const std::optional<std::string>& host_root)
      : runner(NewCommandRunner()), mode(SystemModeSources(host_root, runner.get())) {}
  const std::unique_ptr<CommandRunner> runner;
  const ModeSources mode;
};

DaemonAudits::DaemonAudits(const std::optional<std::string>& host_root, Metrics& metrics)
    : sources_(std::make_shared<const Sources>(host_root)), metrics_(metrics) {}

void DaemonAudits::Start(EventLoop& loop, Endpoints& endpoints, const Config& config) {
  endpoints_ = &endpoints;
  watch_ = std::make_unique<AuditWatch>(
      loop, AuditWatch::Handlers{.done = [this](NodeAudit audit) { OnDone(std::move(audit)); },
                                 .failed = [this](const auto& why) { OnFailed(why); }});
  Set(config);
}

void DaemonAudits::Set(const Config& config) {
  if (watch_ == nullptr) return;
  watch_->Set(
      config.audit_period,
      [sources = sources_, cni = config.cni_conf_dirs, flag = config.iptables_mode,
       options =
           AuditOptions{
               .bits = config.bits, .mode = config.mode, .allow = {}, .families = config.families}](
          const std::function<absl::Status()>& pause) mutable {
        options.mode_unknown = ModeContradiction(options.families, flag, sources->mode);
        return AuditNode(sources->mode, ReadNodeCniConfigs(sources->mode.host_root, cni), options,
                         pause);
      });
  if (config.audit_period == absl::ZeroDuration()) Show(NodeAudit());
}

bool DaemonAudits::End(absl::Duration patience) {
  return watch_ == nullptr || watch_->End(patience);
}

void DaemonAudits::OnDone(NodeAudit audit) {
  metrics_.AuditEnded(absl::OkStatus());
  problem_.clear();
  LogAudit(*shown_, audit);
  Show(std::move(audit));
}

void DaemonAudits::OnFailed(const absl::Status& status) {
  metrics_.AuditEnded(status);
  const std::string why(status.message());
  if (absl::IsAborted(status)) {
    VLOG(1) << "An audit was given up: " << why;
  } else if (std::exchange(problem_, why) != why) {
    LOG(WARNING) << "The node is not audited: " << why;
  }
}

void DaemonAudits::Show(NodeAudit audit) {
  shown_ = std::make_shared<const NodeAudit>(std::move(audit));
  metrics_.SetAudit(*shown_);
  endpoints_->PublishAudit(shown_);
}

}  // namespace kipt::agent
