// SPDX-License-Identifier: Apache-2.0
//
// ResolveDaemonSettings of config_inputs.h.
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/config/bind_address.h"
#include "agent/config/config_inputs.h"
#include "agent/config/go_duration.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

using netlink::WatchMode;

absl::Status ResolveSyncPeriod(const ConfigInputs& inputs, Config& config) {
  const auto& flag = inputs.flags.iptables_sync_period;
  const auto& field = inputs.file.iptables_sync_period;
  config.iptables_sync_period = ConfigInputs::Choose(flag, field, config.iptables_sync_period);
  if (config.iptables_sync_period >= absl::Seconds(1) &&
      config.iptables_sync_period <= absl::Hours(24)) {
    return absl::OkStatus();
  }
  return inputs.Blame(
      "iptables-sync-period", flag, "iptablesSyncPeriod", field,
      absl::StrCat(FormatGoDuration(config.iptables_sync_period), " is not between 1s and 24h"));
}

absl::Status ResolveWatch(const ConfigInputs& inputs, Config& config) {
  const auto& flag = inputs.flags.watch;
  const auto& field = inputs.file.watch;
  const std::string text =
      ConfigInputs::Choose(flag, field, std::string(WatchModeName(config.watch)));
  for (const WatchMode mode : {WatchMode::kEvents, WatchMode::kPoll}) {
    if (WatchModeName(mode) != text) continue;
    config.watch = mode;
    return absl::OkStatus();
  }
  return inputs.Blame("watch", flag, "watch", field,
                      absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                   "; accepted are events, poll"));
}

// One of the two addresses, by its names.
struct AddressSetting {
  absl::string_view flag_name;
  absl::string_view field_name;
  const std::optional<std::string>& flag;
  const std::optional<FromLine<std::string>>& field;
};

absl::Status ResolveAddress(const ConfigInputs& inputs, const AddressSetting& setting,
                            std::string& address) {
  address = ConfigInputs::Choose(setting.flag, setting.field, address);
  if (address.empty()) return absl::OkStatus();
  absl::Status status = ParseBindAddress(address).status();
  if (status.ok()) return status;
  return inputs.Blame(setting.flag_name, setting.flag, setting.field_name, setting.field,
                      absl::StrCat("invalid value ", featuregates::QuoteForMessage(address), "; ",
                                   status.message(), ", or empty for none"));
}

}  // namespace

absl::Status ResolveDaemonSettings(const ConfigInputs& inputs, Config& config) {
  const auto& [flags, file] = inputs;
  absl::Status status = ResolveSyncPeriod(inputs, config);
  if (status.ok()) status = ResolveWatch(inputs, config);
  config.observe = ConfigInputs::Choose(flags.observe, file.observe, config.observe);
  if (status.ok()) {
    status = ResolveAddress(inputs,
                            {"healthz-bind-address", "healthzBindAddress",
                             flags.healthz_bind_address, file.healthz_bind_address},
                            config.healthz_bind_address);
  }
  if (status.ok()) {
    status = ResolveAddress(inputs,
                            {"metrics-bind-address", "metricsBindAddress",
                             flags.metrics_bind_address, file.metrics_bind_address},
                            config.metrics_bind_address);
  }
  return status;
}

}  // namespace kipt::agent
