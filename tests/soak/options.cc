// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/options.h"

#include <CLI/CLI.hpp>
#include <map>
#include <random>

namespace kipt::soak {

using testing::IptablesMode;

std::optional<int> ReadOptions(int argc, char** argv, Options& options) {
  CLI::App app("Random damage by several writers, reloads, kills and flips, with packets flowing");
  double minutes = 30;
  bool busy = false;
  std::optional<double> repair_seconds;
  std::optional<double> quiet_seconds;
  std::optional<double> slack_seconds;
  std::string mode = "both";
  options.seed = std::random_device{}();
  options.program = KIPT_AGENT_PROGRAM;
  app.add_option("--minutes", minutes)->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of the random generators; printed in every case");
  app.add_option("--mode", mode)->check(CLI::IsMember({"nft", "legacy", "both"}));
  app.add_option("--agent", options.program, "another kube-iptables-agent");
  app.add_option("--log", options.log, "a file for every event with its time");
  app.add_option("--report", options.report, "a file for the summary, as Markdown");
  app.add_option("--version-text", options.version, "for the summary: what was built");
  app.add_flag("--busy", busy, "the limits for a machine that does other work: 30, 60, 0.25");
  app.add_option("--repair-bound", repair_seconds, "seconds");
  app.add_option("--quiet-bound", quiet_seconds, "seconds");
  app.add_option("--slack", slack_seconds, "seconds");
  app.add_option("--packets", options.packets_per_second, "of each stream in a second")
      ->check(CLI::Range(10, 400));
  const std::map<std::string, Cripple> cripples = {
      {"none", Cripple::kNone}, {"stopped", Cripple::kStopped}, {"observing", Cripple::kObserving}};
  app.add_option("--cripple", options.cripple, "the daemon: none, stopped, observing")
      ->transform(CLI::CheckedTransformer(cripples));
  app.add_option("--must-fail", options.must_fail,
                 "names of judges: end as soon as each has reported a violation, only then with 0")
      ->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  options.length = absl::Minutes(minutes);
  if (busy) options.limits = kBusyLimits;
  if (repair_seconds) options.limits.repair = absl::Seconds(*repair_seconds);
  if (quiet_seconds) options.limits.quiet = absl::Seconds(*quiet_seconds);
  if (slack_seconds) options.limits.slack = absl::Seconds(*slack_seconds);
  if (mode != "legacy") options.modes.push_back(IptablesMode::kNft);
  if (mode != "nft") options.modes.push_back(IptablesMode::kLegacy);
  return std::nullopt;
}

}  // namespace kipt::soak
