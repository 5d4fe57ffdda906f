// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/config_text.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "agent/config/command_line.h"
#include "agent/config/load_config.h"
#include "agent/config/value_texts.h"
#include "tests/fuzz/require.h"

namespace kipt::testing {
namespace {

using agent::Config;

const agent::ConfigSources kSources = {.default_config_path = "/nonexistent/config.yaml",
                                       .if_inet6_path = "/proc/self/status"};

void CheckRanges(const Config& config) {
  for (const int bit : {config.bits.masquerade, config.bits.drop}) {
    KIPT_REQUIRE(bit >= 0 && bit <= 31);
  }
  if (config.mode == agent::Mode::kLegacy) {
    KIPT_REQUIRE(config.bits.masquerade != config.bits.drop);
  }
  KIPT_REQUIRE(!config.families.empty() && config.families.size() <= 2);
  KIPT_REQUIRE(config.iptables_sync_period >= absl::Seconds(1) &&
               config.iptables_sync_period <= absl::Hours(24));
  for (const std::string& address : {config.healthz_bind_address, config.metrics_bind_address}) {
    KIPT_REQUIRE(address.empty() || agent::ParseBindAddress(address).ok());
  }
  KIPT_REQUIRE(WhatNeedsARestart(config, config).empty());
}

// Every setting of `config` as flags. Gates that cannot be changed are left out: they would be
// refused, or warned of.
std::vector<std::string> FlagsOf(const Config& config) {
  std::vector<std::string> gates;
  for (const featuregates::GateState& gate : config.gates.States()) {
    if (gate.explicitly_set) {
      gates.push_back(absl::StrCat(gate.name, "=", gate.enabled ? "true" : "false"));
    }
  }
  std::vector<std::string> flags = {
      "gates",
      absl::StrCat("--emulated-version=", featuregates::ToString(config.emulated_version)),
      absl::StrCat("--feature-gates=", absl::StrJoin(gates, ",")),
      absl::StrCat("--make-iptables-util-chains=", config.make_iptables_util_chains),
      absl::StrCat("--ip-families=",
                   config.families_by_kernel ? "auto" : agent::FamiliesText(config.families)),
      absl::StrCat("--iptables-mode=",
                   config.iptables_mode ? IptablesModeName(*config.iptables_mode) : "auto"),
      absl::StrCat("--iptables-sync-period=", agent::FormatGoDuration(config.iptables_sync_period)),
      absl::StrCat("--audit-period=", agent::FormatGoDuration(config.audit_period)),
      absl::StrCat("--watch=", agent::WatchModeName(config.watch)),
      absl::StrCat("--observe=", config.observe),
      absl::StrCat("--healthz-bind-address=", config.healthz_bind_address),
      absl::StrCat("--metrics-bind-address=", config.metrics_bind_address),
      absl::StrCat("--stale-chains=", StaleChainsName(config.stale_chains)),
      absl::StrCat("--hint-policy=", HintPolicyName(config.hint_policy)),
      absl::StrCat("--iptables-masquerade-label=", config.labels.masquerade),
      absl::StrCat("--iptables-drop-label=", config.labels.drop)};
  if (!config.cni_conf_dirs.empty()) {
    flags.push_back(absl::StrCat("--cni-conf-dir=", absl::StrJoin(config.cni_conf_dirs, ",")));
  }
  // From 1.31 on the flags are unknown.
  if (config.emulated_version < featuregates::Version{1, 31}) {
    flags.push_back(absl::StrCat("--iptables-masquerade-bit=", config.bits.masquerade));
    flags.push_back(absl::StrCat("--iptables-drop-bit=", config.bits.drop));
  }
  return flags;
}

void CheckThatFlagsSayTheSame(const Config& config) {
  const auto parsed = agent::ParseCommandLine(FlagsOf(config));
  KIPT_REQUIRE(parsed.ok());
  KIPT_REQUIRE(parsed->help.empty());
  agent::Flags flags = parsed->flags;
  flags.host_root = config.host_root;
  const absl::StatusOr<Config> again = LoadConfig(flags, kSources);
  KIPT_REQUIRE(again.ok());
  Config expected = config;
  // These tell of the origin.
  expected.config_file = again->config_file;
  expected.warnings = again->warnings;
  expected.gates = again->gates;
  KIPT_REQUIRE(ToString(config.gates) == ToString(again->gates));
  if (config.emulated_version >= featuregates::Version{1, 31}) expected.bits = again->bits;
  KIPT_REQUIRE(*again == expected);
}

}  // namespace

absl::StatusOr<Config> LoadAndCheck(const agent::Flags& flags) {
  absl::StatusOr<Config> config = LoadConfig(flags, kSources);
  if (!config.ok()) {
    KIPT_REQUIRE_REASON(config.status());
    KIPT_REQUIRE(absl::IsInvalidArgument(config.status()));
    return config;
  }
  KIPT_REQUIRE(!ToString(*config).empty());
  CheckRanges(*config);
  CheckThatFlagsSayTheSame(*config);
  return config;
}

}  // namespace kipt::testing
