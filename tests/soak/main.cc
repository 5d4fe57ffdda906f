// SPDX-License-Identifier: Apache-2.0
//
// What it does, and its options: tests/soak/run.
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/soak/journal.h"
#include "tests/soak/options.h"
#include "tests/soak/soak.h"
#include "tests/soak/summary.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::soak {
namespace {

std::vector<NodeSummary> SoakAll(const Options& options, Journal& journal) {
  // One /run for all: only legacy iptables has anything there.
  const testing::PrivateRun run;
  std::vector<NodeSummary> summaries(options.modes.size());
  std::vector<std::vector<testing::Netns>> namespaces(options.modes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.modes.size(); ++i) {
    threads.emplace_back(
        [&, i] { summaries[i] = SoakNode(options.modes[i], options, journal, namespaces[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_node : namespaces) JudgeRemains(InodesOf(of_node), journal);
  return summaries;
}

int Main(int argc, char** argv) {
  Options options;
  const std::optional<int> end = ReadOptions(argc, argv, options);
  if (end) return *end;
  // Whatever is done by mistake outside of a node's namespace is not done to the machine's own.
  const absl::Status own = testing::Netns::MoveToNew();
  if (!own.ok()) {
    std::cerr << own << "\n";
    return 1;
  }
  std::cout << "seed " << options.seed << std::endl;
  Journal journal(options.seed, options.log);
  const std::vector<NodeSummary> summaries = SoakAll(options, journal);
  const std::string text = SummaryText(summaries, options, journal);
  std::cout << text;
  if (!options.report.empty()) std::ofstream(options.report) << text;
  if (options.must_fail.empty()) return journal.violations().empty() ? 0 : 2;
  // A failure before the daemon was crippled shows nothing.
  for (const NodeSummary& node : summaries) {
    const bool crippled = journal.counts(node.name).count("crippled") != 0;
    if (options.cripple != Cripple::kNone && !crippled) return 2;
  }
  // Such a run is cut short: it must also say that it has proved nothing.
  std::vector<std::string> judges = options.must_fail;
  judges.emplace_back("floor");
  return journal.Violated(judges) ? 0 : 2;
}

}  // namespace
}  // namespace kipt::soak

int main(int argc, char** argv) { return kipt::soak::Main(argc, argv); }
