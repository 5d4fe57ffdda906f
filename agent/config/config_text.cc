// SPDX-License-Identifier: Apache-2.0
//
// The part of config.h that writes a Config down: ToString and WhatNeedsARestart.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/config/config.h"
#include "agent/config/go_duration.h"

namespace kipt::agent {
namespace {

std::string IptablesModeText(const Config& config) {
  return std::string(config.iptables_mode ? IptablesModeName(*config.iptables_mode) : "auto");
}
std::string HostRootText(const Config& config) { return config.host_root.value_or("(own)"); }
std::string WatchText(const Config& config) { return std::string(WatchModeName(config.watch)); }
std::string AddressText(const std::string& address) { return address.empty() ? "(none)" : address; }
std::string HealthzText(const Config& config) { return AddressText(config.healthz_bind_address); }
std::string MetricsText(const Config& config) { return AddressText(config.metrics_bind_address); }

// Kept from start to end.
constexpr std::array<absl::string_view, 5> kFixedSettings = {
    "iptablesMode", "hostRoot", "watch", "healthzBindAddress", "metricsBindAddress"};

}  // namespace

absl::string_view WatchModeName(netlink::WatchMode mode) {
  return mode == netlink::WatchMode::kPoll ? "poll" : "events";
}

std::string FamiliesText(absl::Span<const netlink::Family> families) {
  return absl::StrJoin(families, ",", [](std::string* out, netlink::Family family) {
    *out += family == netlink::Family::kIPv4 ? "ipv4" : "ipv6";
  });
}

std::string ToString(const Config& config) {
  const std::string families = FamiliesText(config.families);
  return absl::StrCat(
      "emulatedVersion: ", featuregates::ToString(config.emulated_version), "\n",  //
      "featureGates: ", featuregates::ToString(config.gates), "\n",                //
      "makeIPTablesUtilChains: ", config.make_iptables_util_chains ? "true" : "false", "\n",
      "mode: ", ModeName(config.mode), "\n",                    //
      "iptablesMasqueradeBit: ", config.bits.masquerade, "\n",  //
      "iptablesDropBit: ", config.bits.drop, "\n",              //
      "iptablesMasqueradeLabel: ", config.labels.masquerade, "\n",
      "iptablesDropLabel: ", config.labels.drop, "\n",  //
      "ipFamilies: ", config.families_by_kernel ? absl::StrCat("auto (", families, ")") : families,
      "\n", "iptablesMode: ", IptablesModeText(config), "\n",                       //
      "hostRoot: ", HostRootText(config), "\n",                                     //
      "iptablesSyncPeriod: ", FormatGoDuration(config.iptables_sync_period), "\n",  //
      "watch: ", WatchText(config), "\n",                                           //
      "observe: ", config.observe ? "true" : "false", "\n",                         //
      "healthzBindAddress: ", HealthzText(config), "\n",                            //
      "metricsBindAddress: ", MetricsText(config), "\n",                            //
      "staleChains: ", StaleChainsName(config.stale_chains), "\n",                  //
      "hintPolicy: ", HintPolicyName(config.hint_policy), "\n",                     //
      "cniConfDir: ",
      config.cni_conf_dirs.empty() ? "(known)" : absl::StrJoin(config.cni_conf_dirs, ","), "\n",
      "config: ", config.config_file.empty() ? "(none)" : config.config_file, "\n");
}

std::vector<ConfigChange> WhatChanges(const Config& from, const Config& to) {
  const std::string before = ToString(from);
  const std::string after = ToString(to);
  const std::vector<absl::string_view> were = absl::StrSplit(before, '\n', absl::SkipEmpty());
  const std::vector<absl::string_view> are = absl::StrSplit(after, '\n', absl::SkipEmpty());
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < are.size(); ++i) {
    const std::pair<std::string, std::string> was =
        absl::StrSplit(were[i], absl::MaxSplits(": ", 1));
    const std::pair<std::string, std::string> is = absl::StrSplit(are[i], absl::MaxSplits(": ", 1));
    if (was != is) changes.push_back({.name = is.first, .from = was.second, .to = is.second});
  }
  return changes;
}

std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& wanted) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : WhatChanges(running, wanted)) {
    if (std::find(kFixedSettings.begin(), kFixedSettings.end(), change.name) ==
        kFixedSettings.end()) {
      continue;
    }
    lines.push_back(absl::StrCat(change.name, ": ", change.from, " now, ", change.to, " wanted"));
  }
  return lines;
}

}  // namespace kipt::agent
