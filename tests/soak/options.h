// SPDX-License-Identifier: Apache-2.0
//
// File: tests/soak/options.h
#ifndef KIPT_TESTS_SOAK_OPTIONS_H_
#define KIPT_TESTS_SOAK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {

// The daemon, crippled on purpose once all stands: the soak must notice.
enum class Cripple { kNone, kStopped, kObserving };

struct Options {
  absl::Duration length = absl::Minutes(30);
  uint64_t seed = 0;
  std::vector<testing::IptablesMode> modes;
  std::string program;
  std::string log;
  std::string report;
  // How long what is missing may stay so while the daemon can act.
  absl::Duration repair_bound = absl::Seconds(5);
  // How long all may need to be in place once the writers pause.
  absl::Duration quiet_bound = absl::Seconds(2);
  // How much later than it happens something may be seen here, on a machine with much else to do.
  absl::Duration slack = absl::Milliseconds(60);
  int packets_per_second = 100;
  Cripple cripple = Cripple::kNone;
  // Ends as soon as an invariant is violated, and only then well.
  bool must_fail = false;
};

// The exit status to end with instead, where there is one: after --help, or a wrong option.
std::optional<int> ReadOptions(int argc, char** argv, Options& options);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_OPTIONS_H_
