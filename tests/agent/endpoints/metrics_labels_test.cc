// SPDX-License-Identifier: Apache-2.0
//
// The gate ConnLabelMarking and its chains among the metrics.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/endpoints/metrics.h"
#include "tests/agent/endpoints/metric_values.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::Filter;
using ::kipt::testing::Nat;

TEST(LabelMetricsTest, OurOwnGateIsThereWithItsStage) {
  Metrics metrics({.version = "0.7.0"});
  const std::string gate = "kubernetes_feature_enabled{name=\"ConnLabelMarking\",stage=\"ALPHA\"}";
  for (const char* version : {"1.24", "1.27", "1.31"}) {
    metrics.SetConfig(MakeConfig(version));
    EXPECT_EQ(Value(metrics, gate), 0) << version;
    metrics.SetConfig(MakeConfig(version, {"ConnLabelMarking=true"}));
    EXPECT_EQ(Value(metrics, gate), 1) << version;
  }
}

TEST(LabelMetricsTest, EveryChainHasItsCountersFromTheStart) {
  const Metrics metrics({.version = "0.7.0"});
  const std::pair<const char*, const char*> chains[] = {{"KUBELET-MARK-MASQ", "nat"},
                                                        {"KUBELET-MARK-DROP", "nat"},
                                                        {"KUBELET-POSTROUTING", "nat"},
                                                        {"KUBELET-FIREWALL", "filter"}};
  for (const auto& [chain, table] : chains) {
    for (const char* family : {"ip", "ip6"}) {
      const std::string head = absl::StrCat("{chain=\"", chain, "\",family=\"", family, "\",");
      const std::string tail = absl::StrCat("table=\"", table, "\"}");
      for (const char* kind :
           {"chain_missing", "rule_missing", "rule_misplaced", "rule_unwanted"}) {
        const std::string series =
            absl::StrCat("drift_detected_total", head, "kind=\"", kind, "\",", tail);
        EXPECT_EQ(Value(metrics, Ours(series)), 0) << series;
      }
      EXPECT_EQ(Value(metrics, Ours(absl::StrCat("retired_total", head, tail))), 0) << head;
    }
  }
  EXPECT_EQ(Value(metrics, Ours("drift_detected_total{chain=\"FORWARD\",family=\"ip\",kind="
                                "\"jump_missing\",table=\"filter\"}")),
            0);
}

TEST(LabelMetricsTest, TheChainsAreCountedLikeTheOthers) {
  Metrics metrics({.version = "0.7.0"});
  Round round;
  round.incident.emplace();
  round.incident->damage = {{Nat("KUBELET-MARK-MASQ"), DamageKind::kChainMissing, "x"}};
  AgentState state = StateInPlace();
  state.foreign_references = {{Nat("KUBELET-MARK-MASQ"), 3}};
  state.stale = {{Nat("KUBELET-MARK-MASQ"), ":KUBELET-MARK-MASQ - [0:0]", "stale"},
                 {Nat("KUBELET-MARK-MASQ"), "-A KUBELET-MARK-MASQ x", "stays with its chain"},
                 {Filter("KUBELET-FIREWALL"), ":KUBELET-FIREWALL - [0:0]", "stale"}};
  state.claimed = {{state.stale[0], {{ClaimKind::kForeignJump, "x"}}},
                   {{Nat("KUBELET-POSTROUTING"), ":KUBELET-POSTROUTING - [0:0]", "stale"},
                    {{ClaimKind::kLabelledPackets, "x"}}}};
  state.findings = {{Condition::kConnLabelsImpossible, Nat("KUBELET-MARK-MASQ"), "no", false}};
  metrics.Record(round, state);
  const std::pair<const char*, double> expected[] = {
      {"stale_chains{family=\"ip\"}", 2},
      {"drift_detected_total{chain=\"KUBELET-MARK-MASQ\",family=\"ip\",kind=\"chain_missing\","
       "table=\"nat\"}",
       1},
      {"drift_detected_total{chain=\"KUBELET-MARK-MASQ\",family=\"ip\",kind=\"rule_missing\","
       "table=\"nat\"}",
       0},
      {"drift_detected_total{chain=\"KUBELET-MARK-MASQ\",family=\"ip6\",kind=\"chain_missing\","
       "table=\"nat\"}",
       0},
      {"foreign_references{chain=\"KUBELET-MARK-MASQ\",family=\"ip\",table=\"nat\"}", 3},
      {"stale_claims{chain=\"KUBELET-MARK-MASQ\",claim=\"foreignJump\",family=\"ip\","
       "table=\"nat\"}",
       1},
      {"stale_claims{chain=\"KUBELET-POSTROUTING\",claim=\"labelledPackets\",family=\"ip\","
       "table=\"nat\"}",
       1},
      {"findings{condition=\"ConnLabelsImpossible\",family=\"ip\"}", 1},
      {"findings{condition=\"ConnLabelsImpossible\",family=\"ip6\"}", 0},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(Value(metrics, Ours(series)), value) << series;
  }
}

}  // namespace
}  // namespace kipt::agent
