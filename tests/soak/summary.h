// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SOAK_SUMMARY_H_
#define KIPT_TESTS_SOAK_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/soak/health.h"
#include "tests/soak/journal.h"
#include "tests/soak/options.h"
#include "tests/soak/traffic.h"
#include "tests/soak/windows.h"

namespace kipt::soak {

struct NodeSummary {
  std::string name;
  std::map<std::string, int64_t> counts = {};
  // How long the daemon took for what it could repair, as the kernel showed it.
  std::vector<absl::Duration> repairs = {};
  absl::Duration longest_return = {};
  std::vector<absl::Duration> quiet = {};
  // How long each read of the rules took.
  std::vector<absl::Duration> looks = {};
  TrafficCounts traffic = {};
  std::vector<Sample> samples = {};
  absl::Duration run = {};
};

// The whole report, as Markdown.
std::string SummaryText(const std::vector<NodeSummary>& nodes, const Options& options,
                        const Journal& journal);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_SUMMARY_H_
