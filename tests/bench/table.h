// SPDX-License-Identifier: Apache-2.0
//
// Measures everything in operations.h, for every number of services and both iptables modes.
#ifndef KIPT_TESTS_BENCH_TABLE_H_
#define KIPT_TESTS_BENCH_TABLE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// What takes longer, in microseconds, is not done twice more only to be counted.
inline constexpr double kMostToCount = 3e6;

struct TableOptions {
  std::vector<int> services = {0, 100, 1000, 10000, 30000};
  std::vector<IptablesMode> modes = {IptablesMode::kNft, IptablesMode::kLegacy};
  // More are left out on legacy iptables, where a round beside 10,000 takes minutes, and said so.
  int legacy_most = 10000;
  // Rounds. In each one everything is done in turns, so that a slow minute of the machine is
  // everybody's.
  int repeats = 9;
  // After so long an operation gets no further round, its preparations included; it has had one.
  absl::Duration budget = absl::Seconds(8);
  // Only operations of this name; for perf and strace. Empty: all.
  std::string only = {};
};

// {"repeats", "cells": [...], "left_out": [...]}. A cell has "mode", "services", "operation",
// "contender"; "wall" and "cpu" in microseconds (Summary); "commits", the median number of
// generations; and what one untimed run of it more counted: "system_calls", "programs",
// "netlink_sent", "netlink_received", "xtables_bytes", "program_peak_kib", "allocations",
// "allocated_bytes"; null where it was not counted. Says on standard error how far it is.
absl::StatusOr<nlohmann::json> MeasureTable(const TableOptions& options);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_TABLE_H_
