// SPDX-License-Identifier: Apache-2.0
//
// What the daemon's audits cost: whether repairs are later for them, processor time and memory.
#ifndef KIPT_TESTS_BENCH_AUDITS_H_
#define KIPT_TESTS_BENCH_AUDITS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/figures_view.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

struct AuditsOptions {
  std::vector<int> services = {0, 10000};
  std::vector<IptablesMode> modes = {IptablesMode::kNft, IptablesMode::kLegacy};
  // With audits, and as many without.
  int repairs = 300;
  // For processor time and memory, with nothing else to do.
  int audits = 3;
  // How long the repairs of one number of services may take; then there are fewer.
  absl::Duration budget = absl::Minutes(4);
  // See Targets.
  double slack = 1;
};

// In one fresh network namespace for each mode and number of services. Prints figures and targets.
// {"met", "targets" (Targets::all), "cells": [{"mode", "services", "without", "with", "during"
// (Figures::Summary: damage to repaired, by daemons without and with audits, and of those the ones
// while an audit ran), "unseen", "audit_cpu_us", "audit_us", "share_percent" (of a processor, at
// the default period), "rest_kib", "peak_kib" (RssAnon)}]}. Any error: something could not be
// measured.
absl::StatusOr<nlohmann::json> MeasureAudits(const AuditsOptions& options);

// The report of figures whose part "audits" is what MeasureAudits returned.
std::string AuditsText(const FiguresView& figures);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_AUDITS_H_
