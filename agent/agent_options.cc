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

}  // namespace

AgentOptions AgentOptionsSource::Make(const Config& config, std::optional<IptablesMode> mode) {
  mode_ = mode;
  if (mode) support_.Look(IptablesModeName(*mode), config.hint_policy);
  AgentOptions options = {
      .desired = DesiredRuleset(config.mode, config.families, config.bits, support_.support()),
      .emulated_version = config.emulated_version,
      .watch = config.watch,
      .observe = config.observe,
      .sync_period = config.iptables_sync_period,
      .writers = {},
      .retire = {},
      .route_localnet = RouteLocalnetOrNone};
  if (mode && Retires(config)) {
    options.retire =
        MakeRetirementSources(std::string(IptablesModeName(*mode)), config.cni_conf_dirs, sources_);
  }
  return options;
}

bool AgentOptionsSource::IsOutdated(const Config& config, std::optional<IptablesMode> mode,
                                    const Round& round, std::string& why) {
  if (mode != mode_) return true;
  const RuleSupport& support = support_.support();
  const bool refused = support.xt && round.report.LacksExtension();
  const bool waits = !support.xt && round.trigger == Trigger::kTimer;
  if (refused) support_.NoteRefusal();
  if (!mode || (!refused && !waits) ||
      !support_.Look(IptablesModeName(*mode), config.hint_policy)) {
    return false;
  }
  why = support.xt ? "iptables can hold rules now"
                   : absl::StrCat("iptables can hold no rules here: ", support.reason);
  return true;
}

absl::StatusOr<std::optional<RetiredMode>> AgentOptionsSource::RetireOtherModeFirst(
    const Config& config, IptablesMode mode, netlink::Backend& backend) {
  if (!Retires(config)) return std::nullopt;
  const SyncReport synced = Reconciler(&backend, SystemClock()).Sync(Make(config, mode).desired);
  if (!synced.FirstError().ok()) return synced.FirstError();
  return RetireOtherMode(std::string(IptablesModeName(mode)), config.cni_conf_dirs, sources_,
                         /*canaries=*/false, MartianProtectionStands(synced), /*apply=*/true);
}

}  // namespace kipt::agent
