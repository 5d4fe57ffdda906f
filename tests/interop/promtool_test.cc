// SPDX-License-Identifier: Apache-2.0
//
// What /metrics serves, as Prometheus' own linter reads it.

#include "agent/config/load_config.h"
#include "agent/endpoints/metrics.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::ProgramResult;
using ::kipt::testing::RunProgram;

TEST(PromtoolTest, AcceptsOurMetrics) {
  Metrics metrics({.version = "0.1.0"});
  EXPECT_EQ(RunProgram({"promtool", "check", "metrics"}, metrics.Serialize()), ProgramResult())
      << "before the first round";
  Flags flags;
  flags.ip_families = "ipv4";
  const absl::StatusOr<Config> config =
      LoadConfig(flags, {.default_config_path = "/nonexistent/config.yaml"});
  ASSERT_THAT(config, IsOk());
  metrics.SetConfig(*config);
  metrics.Record(BusyRound(), StateInPlace());
  metrics.LockWaited(absl::Milliseconds(5));
  EXPECT_EQ(RunProgram({"promtool", "check", "metrics"}, metrics.Serialize()), ProgramResult());
}

}  // namespace
}  // namespace kipt::agent
