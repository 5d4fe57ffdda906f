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
  double repair_seconds = absl::ToDoubleSeconds(options.repair_bound);
  double quiet_seconds = absl::ToDoubleSeconds(options.quiet_bound);
  double slack_seconds = absl::ToDoubleSeconds(options.slack);
  std::string mode = "both";
  options.seed = std::random_device{}();
  options.program = KIPT_AGENT_PROGRAM;
  app.add_option("--minutes", minutes)->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of the random generators; printed in every case");
  app.add_option("--mode", mode)->check(CLI::IsMember({"nft", "legacy", "both"}));
  app.add_option("--agent", options.program, "another kube-iptables-agent");
  app.add_option("--log", options.log, "a file for every event with its time");
  app.add_option("--report", options.report, "a file for the summary, as Markdown");
  app.add_option("--repair-bound", repair_seconds, "seconds");
  app.add_option("--quiet-bound", quiet_seconds, "seconds");
  app.add_option("--slack", slack_seconds, "seconds");
  app.add_option("--packets", options.packets_per_second, "of each stream in a second")
      ->check(CLI::Range(10, 400));
  const std::map<std::string, Cripple> cripples = {
      {"none", Cripple::kNone}, {"stopped", Cripple::kStopped}, {"observing", Cripple::kObserving}};
  app.add_option("--cripple", options.cripple, "the daemon: none, stopped, observing")
      ->transform(CLI::CheckedTransformer(cripples));
  app.add_flag("--must-fail", options.must_fail,
               "end as soon as an invariant is violated, and only then with 0");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  options.length = absl::Minutes(minutes);
  options.repair_bound = absl::Seconds(repair_seconds);
  options.quiet_bound = absl::Seconds(quiet_seconds);
  options.slack = absl::Seconds(slack_seconds);
  if (mode != "legacy") options.modes.push_back(IptablesMode::kNft);
  if (mode != "nft") options.modes.push_back(IptablesMode::kLegacy);
  return std::nullopt;
}

}  // namespace kipt::soak
