// SPDX-License-Identifier: Apache-2.0
//
// What is wanted against what stands.
#include <benchmark/benchmark.h>

#include "agent/policy/diff.h"
#include "tests/bench/micro_rulesets.h"
#include "tests/bench/service_rules.h"
#include "tests/support/fake_ruleset.h"
#include "tests/support/observed.h"

namespace kipt::testing {

agent::PolicyInput WantedInput() {
  return ::kipt::testing::Wanting(agent::Mode::kLegacy, netlink::kFamilies, {});
}

netlink::Transaction ColdTransaction() {
  const agent::PolicyInput wanted = WantedInput();
  return agent::ToTransaction(agent::ComputeDiff(wanted, {}).changes, 1, wanted.families);
}

netlink::Snapshot StandingRuleset(int services) {
  FakeRuleset ruleset;
  netlink::Transaction all = ColdTransaction();
  for (const netlink::Family family : netlink::kFamilies) {
    for (netlink::Operation& operation : ServiceOperations(family, services)) {
      all.operations.push_back(std::move(operation));
    }
  }
  if (!ApplyTransaction(all, ruleset).ok()) return {};
  return ruleset.snapshot;
}

namespace {

void MakeTheRuleset(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(agent::DesiredRuleset(WantedInput()));
}
BENCHMARK(MakeTheRuleset)->Name("make the wanted ruleset");

void CompareWithAll(benchmark::State& state) {
  const agent::PolicyInput wanted = WantedInput();
  const netlink::Snapshot standing = StandingRuleset(0);
  for (auto _ : state) {
    if (!agent::ComputeDiff(wanted, standing).empty()) {
      return state.SkipWithError("something is missing");
    }
  }
}
BENCHMARK(CompareWithAll)->Name("diff, everything in place");

void CompareWithNothing(benchmark::State& state) {
  const agent::PolicyInput wanted = WantedInput();
  const netlink::Snapshot nothing;
  for (auto _ : state) {
    if (agent::ComputeDiff(wanted, nothing).empty()) {
      return state.SkipWithError("nothing is missing");
    }
  }
}
BENCHMARK(CompareWithNothing)->Name("diff, nothing in place");

}  // namespace
}  // namespace kipt::testing
