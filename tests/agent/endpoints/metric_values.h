// SPDX-License-Identifier: Apache-2.0
//
// What Metrics says, series by series, and configurations to tell it of.
#ifndef KIPT_TESTS_AGENT_ENDPOINTS_METRIC_VALUES_H_
#define KIPT_TESTS_AGENT_ENDPOINTS_METRIC_VALUES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/load_config.h"
#include "agent/endpoints/metrics.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {

inline std::vector<std::string> Lines(const Metrics& metrics) {
  return absl::StrSplit(metrics.Serialize(), '\n', absl::SkipEmpty());
}

// The value of `series`, with all of its labels, which is not negative; -1 where there is none.
inline double Value(const Metrics& metrics, const std::string& series) {
  for (const std::string& line : Lines(metrics)) {
    double value = 0;
    if (absl::StartsWith(line, series + " ") &&
        absl::SimpleAtod(line.substr(series.size() + 1), &value)) {
      return value;
    }
  }
  return -1;
}

inline std::string Ours(const std::string& name) {
  return absl::StrCat("kube_iptables_agent_", name);
}

inline Config MakeConfig(const std::string& emulated, std::vector<std::string> gates = {}) {
  Flags flags;
  flags.emulated_version = emulated;
  flags.ip_families = "ipv4";
  flags.feature_gates = std::move(gates);
  if (emulated < std::string("1.31")) flags.iptables_drop_bit = 15;
  absl::StatusOr<Config> config =
      LoadConfig(flags, {.default_config_path = "/nonexistent/config.yaml"});
  EXPECT_THAT(config, IsOk());
  return *std::move(config);
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_ENDPOINTS_METRIC_VALUES_H_
