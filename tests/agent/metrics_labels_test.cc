// SPDX-License-Identifier: Apache-2.0
//
// The gate ConnLabelMarking and its chains among the metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "agent/endpoints/metrics.h"
#include "agent/endpoints/round_counts.h"
#include "tests/agent/metrics_rounds.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::Filter;
using ::kipt::testing::IsOk;
using ::kipt::testing::Nat;
using ::testing::HasSubstr;

// The value of the first series that begins like this, which is not negative; -1 where there is
// none.
double Value(const Metrics& metrics, const std::string& series) {
  const std::string text = metrics.Serialize();
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    double value = 0;
    if (absl::StartsWith(line, series) &&
        absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) {
      return value;
    }
  }
  return -1;
}

Config MakeConfig(const std::string& emulated, std::vector<std::string> gates = {}) {
  Flags flags;
  flags.emulated_version = emulated;
  flags.ip_families = "ipv4";
  flags.feature_gates = std::move(gates);
  absl::StatusOr<Config> config =
      LoadConfig(flags, {.default_config_path = "/nonexistent/config.yaml"});
  EXPECT_THAT(config, IsOk());
  return *std::move(config);
}

TEST(LabelMetricsTest, OurOwnGateIsThereWithItsStage) {
  Metrics metrics("0.7.0");
  const std::string gate = "kubernetes_feature_enabled{name=\"ConnLabelMarking\",stage=\"ALPHA\"}";
  for (const char* version : {"1.24", "1.27", "1.31"}) {
    metrics.SetConfig(MakeConfig(version));
    EXPECT_EQ(Value(metrics, gate), 0) << version;
    metrics.SetConfig(MakeConfig(version, {"ConnLabelMarking=true"}));
    EXPECT_EQ(Value(metrics, gate), 1) << version;
  }
}

TEST(LabelMetricsTest, EveryChainHasItsCountersFromTheStart) {
  const Metrics metrics("0.7.0");
  for (const char* chain :
       {"KUBELET-MARK-MASQ", "KUBELET-MARK-DROP", "KUBELET-POSTROUTING", "KUBELET-FIREWALL"}) {
    const std::string name = std::string("{chain=\"") + chain + "\"";
    EXPECT_EQ(Value(metrics, "kube_iptables_agent_drift_detected_total" + name), 0) << chain;
    EXPECT_EQ(Value(metrics, "kube_iptables_agent_retired_total" + name), 0) << chain;
  }
  EXPECT_TRUE(EveryDrift().contains({Filter("FORWARD"), DamageKind::kJumpMissing}));
}

TEST(LabelMetricsTest, TheChainsAreCountedLikeTheOthers) {
  Metrics metrics("0.7.0");
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
  const std::string ours = "kube_iptables_agent_";
  const std::string chain = "{chain=\"KUBELET-MARK-MASQ\"";
  EXPECT_EQ(Value(metrics, ours + "stale_chains{family=\"ip\"}"), 2);
  EXPECT_EQ(Value(metrics, ours + "drift_detected_total" + chain +
                               ",family=\"ip\",kind=\"chain_missing\",table=\"nat\"}"),
            1);
  EXPECT_EQ(Value(metrics, ours + "foreign_references" + chain), 3);
  EXPECT_EQ(Value(metrics, ours + "stale_claims" + chain + ",claim=\"foreignJump\""), 1);
  EXPECT_THAT(metrics.Serialize(), HasSubstr("claim=\"labelledPackets\""));
  EXPECT_EQ(Value(metrics, ours + "findings{condition=\"ConnLabelsImpossible\",family=\"ip\"}"), 1);
}

}  // namespace
}  // namespace kipt::agent
