// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "agent/process/own_process.h"
#include "tests/agent/endpoints/metric_values.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

// Everything of the lines but the values of series.
std::set<std::string> Series(const Metrics& metrics) {
  std::set<std::string> series;
  for (const std::string& line : Lines(metrics)) {
    series.insert(line[0] == '#' ? line : line.substr(0, line.rfind(' ')));
  }
  return series;
}

class MetricsTest : public ::testing::Test {
 protected:
  // The value of a series of ours.
  double Of(const std::string& series) const { return Value(metrics_, Ours(series)); }

  Metrics metrics_{{.version = "0.1.0"}};
};

TEST_F(MetricsTest, EveryCounterExistsFromTheStart) {
  for (const char* series :
       {"sync_errors_total{reason=\"permission_denied\"}", "sync_errors_total{reason=\"aborted\"}",
        "sync_errors_total{reason=\"unauthenticated\"}", "syncs_total", "refills_total",
        "external_changes_total", "ownership_fights_total", "events_overrun_total",
        "duplicates_removed_total", "last_success_timestamp_seconds", "sync_duration_seconds_count",
        "repair_latency_seconds_count", "lock_wait_seconds_count",
        "drift_detected_total{chain=\"INPUT\",family=\"ip\",kind=\"jump_missing\",table="
        "\"filter\"}",
        "drift_detected_total{chain=\"KUBE-MARK-MASQ\",family=\"ip6\",kind=\"rule_missing\",table="
        "\"nat\"}"}) {
    EXPECT_EQ(Of(series), 0) << series;
  }
  EXPECT_EQ(Of("build_info{version=\"0.1.0\"}"), 1);
}

TEST_F(MetricsTest, CountsARound) {
  metrics_.Record(BusyRound(), StateInPlace());
  metrics_.Record(BusyRound(), StateInPlace());
  metrics_.LockWaited(absl::Seconds(3));
  const std::pair<const char*, double> expected[] = {
      {"syncs_total", 2},
      {"sync_duration_seconds_count", 2},
      {"sync_duration_seconds_bucket{le=\"0.001\"}", 0},
      {"sync_duration_seconds_bucket{le=\"0.0025\"}", 2},
      {"sync_errors_total{reason=\"permission_denied\"}", 2},
      {"sync_errors_total{reason=\"internal\"}", 0},
      {"external_changes_total", 6},
      {"events_overrun_total", 4},
      {"refills_total", 8},
      {"ownership_fights_total", 2},
      {"repair_latency_seconds_count", 2},
      {"repair_latency_seconds_sum", 0.04},
      {"lock_wait_seconds_sum", 3},
      {"last_success_timestamp_seconds", 1'700'000'000},
      {"drift_detected_total{chain=\"INPUT\",family=\"ip\",kind=\"jump_missing\",table=\"filter\"}",
       2},
      {"drift_detected_total{chain=\"KUBE-FIREWALL\",family=\"ip\",kind=\"chain_missing\",table="
       "\"filter\"}",
       2},
      {"mode_info{emulated_version=\"1.27\",iptables_mode=\"nft\",mode=\"cleanup\"}", 1},
      {"hint_present{family=\"ip\",mode=\"nft\"}", 1},
      {"hint_present{family=\"ip6\",mode=\"nft\"}", 1},
      {"martian_rule_present", 1},
      {"family_ready{family=\"ip\"}", 1},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_DOUBLE_EQ(Of(series), value) << series;
  }
}

TEST_F(MetricsTest, TheStateOfTheLastLookStaysWhereARoundCannotLook) {
  metrics_.Record({}, StateInPlace());
  AgentState state = StateInPlace();
  state.in_place.clear();
  state.martian_protection = false;
  state.families[0].phase = FamilyPhase::kFailed;
  Round round;
  round.report.status = absl::PermissionDeniedError("no");
  metrics_.Record(round, state);
  EXPECT_EQ(Of("martian_rule_present"), 1);
  EXPECT_EQ(Of("family_ready{family=\"ip\"}"), 0);
  metrics_.Record({}, state);
  EXPECT_EQ(Of("martian_rule_present"), 0);
  EXPECT_EQ(Of("hint_present{family=\"ip\",mode=\"nft\"}"), 0);
}

TEST_F(MetricsTest, ShowsStaleChainsAndShadowedJumps) {
  AgentState state = StateInPlace();
  // What legacy mode left: the IPv6 firewall chain with its rule and jumps, canaries, and all of
  // nat.
  const PolicyInput left = Wanting(Mode::kLegacy, netlink::kFamilies, MarkBits{});
  const PolicyInput wanted = Wanting(Mode::kCleanup, netlink::kFamilies, MarkBits{});
  state.stale = ComputeDiff(wanted, Made(left).snapshot()).stale;
  state.of_kube_proxy = {{Nat("KUBE-MARK-MASQ"), ":KUBE-MARK-MASQ - [0:0]", "why"},
                         {Nat("KUBE-MARK-MASQ"), "-A KUBE-MARK-MASQ -j MARK", "why"}};
  state.findings = {{Condition::kShadowedJump, Filter("INPUT"), "below", false}};
  metrics_.Record({}, state);
  EXPECT_EQ(Of("kube_proxy_chains{family=\"ip\"}"), 1);
  EXPECT_EQ(Of("kube_proxy_chains{family=\"ip6\"}"), 0);
  EXPECT_EQ(Of("stale_chains{family=\"ip\"}"), 6);
  EXPECT_EQ(Of("stale_chains{family=\"ip6\"}"), 7);
  EXPECT_EQ(Of("shadowed_jumps{family=\"ip\"}"), 1);
  EXPECT_EQ(Of("shadowed_jumps{family=\"ip6\"}"), 0);
}

TEST_F(MetricsTest, ShowsWhatWasNotDoneAndWhy) {
  AgentState state = StateInPlace();
  state.families[0].pending_changes = 7;
  state.findings = {{Condition::kBitConflict, Filter("INPUT"), "another bit", false},
                    {Condition::kDamagedRule, Filter("INPUT"), "no match", true}};
  state.fights = {Fight{.chain = Filter("INPUT")}, Fight{.chain = Filter("INPUT")}};
  metrics_.Record({}, state);
  EXPECT_EQ(Of("pending_changes{family=\"ip\"}"), 7);
  EXPECT_EQ(Of("pending_changes{family=\"ip6\"}"), 0);
  EXPECT_EQ(Of("findings{condition=\"BitConflict\",family=\"ip\"}"), 1);
  EXPECT_EQ(Of("findings{condition=\"BitConflict\",family=\"ip6\"}"), 0);
  EXPECT_EQ(Of("findings{condition=\"DamagedRule\",family=\"ip\"}"), 0) << "it was repaired";
  const std::string fights =
      Ours("ownership_fights{chain=\"INPUT\",family=\"ip\",table=\"filter\"}");
  EXPECT_EQ(Value(metrics_, fights), 2);
  state.fights.clear();
  metrics_.Record({}, state);
  EXPECT_EQ(Value(metrics_, fights), -1);
}

TEST_F(MetricsTest, ShowsWhetherTheConfigurationOnDiskIsInForce) {
  Config config = MakeConfig("1.27");
  config.iptables_sync_period = absl::Seconds(90);
  metrics_.SetConfig(config);
  EXPECT_EQ(Of("sync_period_seconds"), 90);
  EXPECT_EQ(Of("observing"), 0);
  EXPECT_EQ(Of("config_last_reload_successful"), 1);
  metrics_.ReloadFailed();
  EXPECT_EQ(Of("config_last_reload_successful"), 0);
  config.observe = true;
  metrics_.SetConfig(config);
  EXPECT_EQ(Of("observing"), 1);
  EXPECT_EQ(Of("config_last_reload_successful"), 1);
}

TEST_F(MetricsTest, ANewModeReplacesTheOldOne) {
  AgentState state = StateInPlace();
  state.iptables_mode.clear();
  metrics_.Record({}, state);
  EXPECT_EQ(Of("mode_info{emulated_version=\"1.27\",iptables_mode=\"unknown\",mode=\"cleanup\"}"),
            1);
  state.iptables_mode = "legacy";
  state.families.pop_back();
  metrics_.Record({}, state);
  EXPECT_THAT(metrics_.Serialize(), Not(HasSubstr("unknown\",mode")));
  EXPECT_EQ(Of("hint_present{family=\"ip\",mode=\"legacy\"}"), 1);
  EXPECT_EQ(Of("family_ready{family=\"ip6\"}"), -1);
}

TEST_F(MetricsTest, GatesThatAreGoneLoseTheirSeries) {
  metrics_.SetConfig(MakeConfig("1.26", {"IPTablesOwnershipCleanup=true"}));
  const std::string gate = "kubernetes_feature_enabled{name=\"IPTablesOwnershipCleanup\",stage=";
  EXPECT_EQ(Value(metrics_, gate + "\"ALPHA\"}"), 1);
  EXPECT_EQ(Value(metrics_, "kubernetes_feature_enabled{name=\"AllBeta\",stage=\"BETA\"}"), 0);
  EXPECT_EQ(Of("deprecated_flag_in_use{flag=\"iptables-drop-bit\"}"), 1);
  EXPECT_EQ(Of("deprecated_flag_in_use{flag=\"iptables-masquerade-bit\"}"), 0);
  metrics_.SetConfig(MakeConfig("1.26"));
  EXPECT_EQ(Value(metrics_, gate + "\"ALPHA\"}"), 0);
  EXPECT_EQ(Of("deprecated_flag_in_use{flag=\"iptables-drop-bit\"}"), 0);
  metrics_.SetConfig(MakeConfig("1.28"));
  EXPECT_EQ(Value(metrics_, gate + "\"ALPHA\"}"), -1);
  EXPECT_EQ(Value(metrics_, gate + "\"\"}"), 1);
  metrics_.SetConfig(MakeConfig("1.31"));
  EXPECT_THAT(metrics_.Serialize(), Not(HasSubstr("IPTablesOwnershipCleanup")));
}

TEST_F(MetricsTest, TheNumberOfSeriesDoesNotGrow) {
  metrics_.SetConfig(MakeConfig("1.27"));
  metrics_.Record({}, StateInPlace());
  const std::set<std::string> before = Series(metrics_);
  // With twelve of audits, and what a scrape reads of the process and of connection tracking.
  const auto series = std::count_if(before.begin(), before.end(),
                                    [](const std::string& line) { return line[0] != '#'; });
  EXPECT_LE(series + 12, 400);
  std::vector<DamagedItem> every;
  for (const DamageKind kind :
       {DamageKind::kChainMissing, DamageKind::kRuleMissing, DamageKind::kRuleMisplaced,
        DamageKind::kRuleUnwanted, DamageKind::kJumpMissing, DamageKind::kTableDormant}) {
    for (const DesiredChain& chain : EveryKubeletChain(netlink::Family::kIPv6)) {
      every.push_back({chain.id, kind, "x"});
    }
    for (const DesiredJump& jump : EveryKubeletJump(netlink::Family::kIPv6)) {
      every.push_back({jump.base_chain, kind, "x"});
    }
  }
  for (int i = 0; i < 1000; ++i) {
    Round round = BusyRound();
    // What is not kubelet's never comes here; if it did, it would be no label.
    const DamageKind kind = static_cast<DamageKind>(i % 5);
    round.incident->damage.push_back({Filter(absl::StrCat("cali-", i)), kind, "x"});
    round.incident->damage.insert(round.incident->damage.end(), every.begin(), every.end());
    round.report.families[0].status =
        absl::Status(static_cast<absl::StatusCode>(i % 17), absl::StrCat(i));
    metrics_.Record(round, StateInPlace());
    metrics_.LockWaited(absl::Milliseconds(i));
  }
  EXPECT_EQ(Series(metrics_), before);
}

TEST_F(MetricsTest, EveryFamilyHasHelpAndComesInOrder) {
  metrics_.SetConfig(MakeConfig("1.27"));
  metrics_.Record(BusyRound(), StateInPlace());
  std::vector<std::string> names;
  size_t help = 0;
  for (const std::string& line : Lines(metrics_)) {
    if (absl::StartsWith(line, "# TYPE ")) names.push_back(line.substr(7, line.find(' ', 7) - 7));
    if (absl::StartsWith(line, "# HELP ") && line.back() == '.') ++help;
    if (line.rfind("# HELP", 0) == 0) {
      EXPECT_THAT(line, HasSubstr("."));
    }
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_GE(names.size(), 25U);
  EXPECT_GE(help, names.size() - 4) << "sentences";
}

TEST_F(MetricsTest, TellsOfTheProcess) {
  const double start = Value(metrics_, "process_start_time_seconds");
  EXPECT_LT(std::abs(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - start), 600);
  EXPECT_GT(Value(metrics_, "process_resident_memory_bytes"), 1e6);
  EXPECT_GE(Value(metrics_, "process_cpu_seconds_total"), 0);
  const double fds = Value(metrics_, "process_open_fds");
  EXPECT_GE(fds, 3);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, 0), 0);
  EXPECT_EQ(Value(metrics_, "process_open_fds"), fds + 2);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_FALSE(ReadProcessUsage("/nonexistent").has_value());
}

TEST_F(MetricsTest, MayBeReadWhileItIsWritten) {
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) EXPECT_THAT(metrics_.Serialize(), HasSubstr("build_info"));
  });
  const Config configs[] = {MakeConfig("1.27"), MakeConfig("1.31")};
  for (size_t i = 0; i < 200; ++i) {
    metrics_.SetConfig(configs[i % 2]);
    metrics_.Record(BusyRound(), StateInPlace());
    metrics_.LockWaited(absl::Milliseconds(1));
  }
  done = true;
  reader.join();
}

TEST_F(MetricsTest, TellsWhatWasRetiredAndWhoClaimsTheRest) {
  const netlink::ChainId masq = Nat("KUBE-MARK-MASQ");
  const netlink::ChainId drop = Nat("KUBE-MARK-DROP");
  Round round;
  round.retirement.emplace();
  round.retirement->applied = true;
  netlink::DeleteRule rule;
  rule.chain = drop;
  round.retirement->plan.changes = {{rule, ""}, {netlink::DeleteChain{drop}, ""}};
  AgentState state = StateInPlace();
  state.claimed = {
      {{masq, ":KUBE-MARK-MASQ - [0:0]", ""},
       {{ClaimKind::kCniConfig, "a"}, {ClaimKind::kCniConfig, "b"}, {ClaimKind::kKubeProxy, "c"}}}};
  state.foreign_references = {{masq, 7}};
  metrics_.Record(round, state);
  const std::string labels = "family=\"ip\",table=\"nat\"";
  EXPECT_EQ(Of("retired_total{chain=\"KUBE-MARK-DROP\"," + labels + "}"), 2);
  EXPECT_EQ(Of("retired_total{chain=\"KUBE-MARK-MASQ\"," + labels + "}"), 0);
  EXPECT_EQ(Of("foreign_references{chain=\"KUBE-MARK-MASQ\"," + labels + "}"), 7);
  for (const char* claim : {"cniConfig", "kubeProxy"}) {
    EXPECT_EQ(Value(metrics_, Ours(absl::StrCat("stale_claims{chain=\"KUBE-MARK-MASQ\",claim=\"",
                                                claim, "\",", labels, "}"))),
              1);
  }
  // What was not done does not count, and claims go with what is claimed.
  round.retirement->applied = false;
  metrics_.Record(round, StateInPlace());
  EXPECT_EQ(Of("retired_total{chain=\"KUBE-MARK-DROP\"," + labels + "}"), 2);
  EXPECT_EQ(metrics_.Serialize().find("stale_claims{"), std::string::npos);
}

TEST_F(MetricsTest, TellsOfMartians) {
  AgentState state = StateInPlace();
  state.route_localnet.interfaces = {"all"};
  state.martians_dropped = 5;
  metrics_.Record({}, state);
  EXPECT_EQ(Of("route_localnet_exposed"), 0);
  EXPECT_EQ(Of("martian_dropped_packets_total"), 5);
  state.martian_protection = false;
  state.martians_dropped = 8;
  metrics_.Record({}, state);
  EXPECT_EQ(Of("route_localnet_exposed"), 1);
  EXPECT_EQ(Of("martian_dropped_packets_total"), 8);
}

TEST_F(MetricsTest, WhatWasJustMadeStands) {
  const PolicyInput ruleset = Wanting(Mode::kCleanup, netlink::kFamilies, MarkBits{});
  const std::string hint = Ours("hint_present{family=\"ip\",mode=\"nft\"}");
  const std::string hint6 = Ours("hint_present{family=\"ip6\",mode=\"nft\"}");
  AgentState state = StateInPlace();
  state.in_place.clear();
  Round round;
  metrics_.Record(round, state);
  EXPECT_EQ(Value(metrics_, hint), 0);
  // The state tells what a look found before anything was done.
  round.report.applied = ComputeDiff(ruleset, {}).changes;
  metrics_.Record(round, state);
  EXPECT_EQ(Value(metrics_, hint), 1);
  EXPECT_EQ(Value(metrics_, hint6), 1);
}

TEST_F(MetricsTest, CountsDuplicatesAsTheDiffRemovesThem) {
  const PolicyInput ruleset = Wanting(Mode::kLegacy, netlink::kFamilies, MarkBits{});
  const Ruleset desired = DesiredRuleset(ruleset);
  Observed observed = Made(ruleset);
  const netlink::Rule jump = JumpTo("KUBE-FIREWALL");
  observed.Chain(Filter("INPUT"), {jump, jump, jump});
  const DesiredChain& firewall =
      *std::find_if(desired.chains.begin(), desired.chains.end(),
                    [](const DesiredChain& chain) { return chain.id == Filter("KUBE-FIREWALL"); });
  observed.Chain(firewall.id,
                 {firewall.rules[0].rule, firewall.rules[1].rule, firewall.rules[0].rule});
  Round round;
  round.report.applied = ComputeDiff(ruleset, observed.snapshot()).changes;
  metrics_.Record(round, StateInPlace());
  EXPECT_EQ(Of("duplicates_removed_total"), 3);
}

TEST_F(MetricsTest, EveryDriftIsAboutChainsOfKubeletsAndBaseChains) {
  int drifts = 0;
  for (const std::string& line : Lines(metrics_)) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, Ours("drift_detected_total{chain=\""))) continue;
    ++drifts;
    const absl::string_view name = rest.substr(0, rest.find('"'));
    const bool base =
        name == "INPUT" || name == "OUTPUT" || name == "FORWARD" || name == "POSTROUTING";
    EXPECT_TRUE(base || absl::StartsWith(name, "KUBE-") || absl::StartsWith(name, "KUBELET-"))
        << name;
    const auto is_of = [&](const char* kind) {
      return absl::StrContains(line, absl::StrCat("kind=\"", kind, "\""));
    };
    EXPECT_EQ(is_of("jump_missing"), base && !is_of("rule_unwanted") && !is_of("table_dormant"))
        << line;
  }
  EXPECT_GT(drifts, 0);
  const std::string hint =
      "drift_detected_total{chain=\"KUBE-IPTABLES-HINT\",family=\"ip\",kind=\"";
  const std::string mangle = "\",table=\"mangle\"}";
  EXPECT_EQ(Of(hint + "chain_missing" + mangle), 0);
  EXPECT_EQ(Of(hint + "rule_missing" + mangle), -1);
}

// ---- The gate ConnLabelMarking and its chains among the metrics. ----

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
