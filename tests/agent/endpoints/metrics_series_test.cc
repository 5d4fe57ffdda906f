// SPDX-License-Identifier: Apache-2.0
//
// How many series a node has at most, whatever happens on it.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/node_audit.h"
#include "agent/endpoints/metrics.h"
#include "agent/policy/policy.h"
#include "tests/agent/endpoints/metric_values.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/support/matchers.h"

namespace kipt::agent::metrics_series_test {
namespace {

// Prometheus keeps each of them for each of 5,000 nodes.
constexpr size_t kMostSeries = 400;
constexpr auto kLastClaim = ClaimKind::kHintReaders;

std::vector<std::string> Series(const Metrics& metrics) {
  std::vector<std::string> series = Lines(metrics);
  std::erase_if(series, [](const std::string& line) { return line[0] == '#'; });
  return series;
}
size_t CountOf(const std::vector<std::string>& series, const std::string& name) {
  return static_cast<size_t>(std::count_if(series.begin(), series.end(), [&](const auto& line) {
    return absl::StartsWith(line, Ours(name) + "{") || absl::StartsWith(line, Ours(name) + " ");
  }));
}
double SumOf(const std::vector<std::string>& series, const std::string& name) {
  double sum = 0;
  for (const std::string& line : series) {
    double value = 0;
    if (absl::StartsWith(line, Ours(name) + "{") &&
        absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) {
      sum += value;
    }
  }
  return sum;
}

// Every chain of kubelet's and every base chain that holds a jump of its.
std::set<netlink::ChainId> EveryChain() {
  std::set<netlink::ChainId> chains;
  for (const netlink::Family family : netlink::kFamilies) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) chains.insert(chain.id);
    for (const DesiredJump& jump : EveryKubeletJump(family)) chains.insert(jump.base_chain);
  }
  return chains;
}

// A fight in each chain, every kind of claim on each, references to each, every finding.
AgentState WorstState() {
  AgentState state = StateInPlace();
  for (const netlink::ChainId& chain : EveryChain()) {
    state.fights.push_back({.chain = chain});
    state.foreign_references[chain] = 2;
    std::vector<Claim> claims;
    for (int kind = 0; kind <= static_cast<int>(kLastClaim); ++kind) {
      claims.push_back({static_cast<ClaimKind>(kind), "x"});
    }
    state.claimed.push_back({{chain, "x", "stale"}, claims});
    for (const ConditionRow& row : Conditions()) {
      state.findings.push_back({row.condition, chain, "x", false});
    }
  }
  return state;
}

// More kinds of findings than a node has series.
NodeAudit WorstAudit() {
  AuditReport report;
  for (int i = 0; i < 100; ++i) {
    report.findings.push_back(
        {.severity = AuditSeverity::kError, .chain = absl::StrCat("nat/CHAIN-", i)});
  }
  return MakeNodeAudit({report}, absl::FromUnixSeconds(1));
}

// The version that knows the most gates.
Config WorstConfig() {
  Config worst = MakeConfig("1.27");
  for (int minor = 24; minor <= 37; ++minor) {
    Config config = MakeConfig(absl::StrCat("1.", minor));
    if (config.gates.States().size() >= worst.gates.States().size()) worst = std::move(config);
  }
  return worst;
}

TEST(MetricsSeriesTest, ANodeAtEveryBoundHasAtMostFourHundred) {
  Metrics metrics({.version = "0.1.0"});
  metrics.SetConfig(WorstConfig());
  metrics.SetAudit(WorstAudit());
  const AgentState state = WorstState();
  Round round = BusyRound();
  round.retirement.emplace();
  round.retirement->applied = true;
  for (const netlink::ChainId& chain : EveryChain()) {
    round.retirement->plan.changes.push_back({netlink::DeleteChain{chain}, ""});
  }
  metrics.Record(round, state);
  const std::vector<std::string> series = Series(metrics);
  // What the kernel of this machine may not have is counted, too.
  size_t missing = 0;
  for (const char* name : {"conntrack_entries", "conntrack_limit", "conntrack_dropped_total",
                           "conntrack_early_dropped_total"}) {
    missing += 1 - CountOf(series, name);
  }
  std::map<std::string, int> of_metric;
  for (const std::string& line : series) ++of_metric[line.substr(0, line.find_first_of("{ "))];
  std::string table;
  for (const auto& [name, count] : of_metric) absl::StrAppend(&table, "\n", count, " ", name);
  EXPECT_LE(series.size() + missing, kMostSeries) << table;
  RecordProperty("series", static_cast<int>(series.size() + missing));
  // The judge sees all of what can grow.
  EXPECT_GT(EveryChain().size(), 24U);
  for (const char* name :
       {"ownership_fights", "stale_claims", "foreign_references", "audit_findings"}) {
    EXPECT_EQ(CountOf(series, name), 12U) << name;
  }
  EXPECT_EQ(CountOf(series, "findings"), 2 * Conditions().size());
}

TEST(MetricsSeriesTest, WhatHasNoSeriesOfItsOwnIsCountedAsOther) {
  Metrics metrics({.version = "0.1.0"});
  const AgentState state = WorstState();
  metrics.Record({}, state);
  const std::vector<std::string> series = Series(metrics);
  const auto chains = static_cast<double>(EveryChain().size());
  EXPECT_EQ(SumOf(series, "ownership_fights"), chains);
  EXPECT_EQ(SumOf(series, "foreign_references"), 2 * chains);
  EXPECT_EQ(SumOf(series, "stale_claims"), (static_cast<int>(kLastClaim) + 1) * chains);
  EXPECT_EQ(Value(metrics, Ours("ownership_fights{chain=\"Other\",family=\"\",table=\"\"}")),
            chains - 11);
  EXPECT_THAT(series, Contains(HasSubstr("stale_claims{chain=\"Other\",claim=\"\"")));
}

TEST(MetricsSeriesTest, TwelveHaveTheirOwnSeries) {
  Metrics metrics({.version = "0.1.0"});
  AgentState state = StateInPlace();
  for (const netlink::ChainId& chain : EveryChain()) {
    if (state.fights.size() < 12) state.fights.push_back({.chain = chain});
  }
  metrics.Record({}, state);
  EXPECT_EQ(CountOf(Series(metrics), "ownership_fights"), 12U);
  EXPECT_EQ(metrics.Serialize().find("chain=\"Other\""), std::string::npos);
}

}  // namespace
}  // namespace kipt::agent::metrics_series_test
