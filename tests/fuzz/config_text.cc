// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/config_text.h"

#include <string>

#include "absl/time/time.h"
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
  return config;
}

}  // namespace kipt::testing
