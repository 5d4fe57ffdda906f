// SPDX-License-Identifier: Apache-2.0
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

// The limits of a run.
struct Limits {
  // How long a rule may be missing while the daemon can act, and how long its endpoints may be
  // silent.
  absl::Duration repair = absl::Seconds(5);
  // How long everything may need to be in place once the writers pause.
  absl::Duration quiet = absl::Seconds(2);
  // How much later than it happens something may be seen here.
  absl::Duration slack = absl::Milliseconds(60);
};
// On a machine that has nothing else to do: the default of tests/soak/run.
inline constexpr Limits kIdleLimits = {};
// On a machine that runs other tests at the same time: `--busy`, as in CI.
inline constexpr Limits kBusyLimits = {
    .repair = absl::Seconds(30), .quiet = absl::Seconds(60), .slack = absl::Milliseconds(250)};

struct Options {
  absl::Duration length = absl::Minutes(30);
  uint64_t seed = 0;
  std::vector<testing::IptablesMode> modes;
  std::string program;
  std::string log;
  std::string report;
  // "v0.7.0, commit 0123456": what was built.
  std::string version = "unknown version";
  Limits limits = kIdleLimits;
  int packets_per_second = 100;
  Cripple cripple = Cripple::kNone;
  // Names of judges. The run ends as soon as each of them has reported a violation. It ends well
  // only then, and only if the floor reports that a run cut short has proved nothing.
  std::vector<std::string> must_fail;
};

// The exit status to end with instead, where there is one: after --help, or a wrong option.
std::optional<int> ReadOptions(int argc, char** argv, Options& options);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_OPTIONS_H_
