// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_CONFIG_TEXT_H_
#define KIPT_TESTS_FUZZ_CONFIG_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/config/load_config.h"
#include "agent/config/value_texts.h"
#include "tests/fuzz/require.h"

namespace kipt::testing {

inline const agent::ConfigSources kNoOtherFiles = {
    .default_config_path = "/nonexistent/config.yaml", .if_inet6_path = "/proc/self/status"};

inline void CheckRanges(const agent::Config& config) {
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

// LoadConfig without files other than the flags' own, and with IPv6. Checks that every value of the
// effective configuration is in its range.
inline absl::StatusOr<agent::Config> LoadAndCheck(const agent::Flags& flags) {
  absl::StatusOr<agent::Config> config = LoadConfig(flags, kNoOtherFiles);
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

#endif  // KIPT_TESTS_FUZZ_CONFIG_TEXT_H_
