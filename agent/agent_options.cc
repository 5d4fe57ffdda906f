// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_options.h"

#include "absl/strings/str_cat.h"
#include "agent/loop/martians.h"
#include "agent/policy/policy.h"
#include "agent/retirement_sources.h"

namespace kipt::agent {
namespace {

bool Retires(const Config& config) {
  return config.stale_chains == StaleChains::kRetire && config.mode != Mode::kOff &&
         !config.observe;
}

std::optional<ConnLabels> Labels(const Config& config) {
  return LabelsFor(config.gates, config.mode, config.labels);
}

// For the log.
std::string WhatChanged(const RuleSupport& before, const RuleSupport& now) {
  if (!now.xt) return absl::StrCat("iptables can hold no rules here: ", now.reason);
  if (!before.xt) return "iptables can hold rules now";
  if (now.conn_labels) return "connection labels can be had now";
  return absl::StrCat("connection labels cannot be had here: ", now.conn_labels_reason);
}

}  // namespace

AgentOptions AgentOptionsSource::Make(const Config& config, std::optional<IptablesMode> mode) {
  mode_ = mode;
  // Who observes tries nothing.
  symbols_ = config.observe ? KernelSymbols::kRead : KernelSymbols::kSkip;
  if (mode) support_.Look(*BackendKindOf(*mode), config.hint_policy, Labels(config).has_value());
  AgentOptions options = {.desired = DesiredRuleset(config.mode, config.families, config.bits,
                                                    support_.support(), Labels(config)),
                          .emulated_version = config.emulated_version,
                          .watch = config.watch,
                          .observe = config.observe,
                          .sync_period = config.iptables_sync_period,
                          .writers = {},
                          .retire = {},
                          .route_localnet = RouteLocalnetOrNone};
  if (mode && Retires(config)) {
    options.retire = MakeRetirementSources(*BackendKindOf(*mode), config.cni_conf_dirs, sources_);
  }
  return options;
}

bool AgentOptionsSource::IsOutdated(const Config& config, std::optional<IptablesMode> mode,
                                    const Round& round, std::string& why) {
  const RuleSupport before = support_.support();
  const bool refused = !before.refused && round.report.LacksExtension();
  const bool disproved = round.report.plan.support_disproved;
  const bool labels_refused = !round.report.labels_refused.ok();
  const bool waits = !(before.xt && before.conn_labels) && round.trigger == Trigger::kTimer;
  if (refused) support_.NoteRefusal();
  if (disproved) support_.NoteDisproof();
  if (labels_refused) support_.NoteConnLabelRefusal(round.report.labels_refused.message());
  if (mode != mode_) return true;
  if (!mode || !(refused || disproved || labels_refused || waits) ||
      !support_.Look(*BackendKindOf(*mode), config.hint_policy, Labels(config).has_value())) {
    return false;
  }
  why = WhatChanged(before, support_.support());
  return true;
}

absl::StatusOr<std::optional<RetiredMode>> AgentOptionsSource::RetireOtherModeFirst(
    const Config& config, IptablesMode mode, netlink::Backend& backend) {
  if (!Retires(config)) return std::nullopt;
  Reconciler reconciler(&backend, SteadyClock());
  SyncReport synced = reconciler.Sync(Make(config, mode).desired);
  if (synced.LacksExtension()) {
    support_.NoteRefusal();
    synced = reconciler.Sync(Make(config, mode).desired);
  }
  if (!synced.labels_refused.ok()) {
    support_.NoteConnLabelRefusal(synced.labels_refused.message());
  }
  if (!synced.FirstError().ok()) return synced.FirstError();
  return RetireOtherMode(*BackendKindOf(mode), config.families, config.cni_conf_dirs, sources_,
                         MartianProtectionStands(synced),
                         /*apply=*/true);
}

}  // namespace kipt::agent
