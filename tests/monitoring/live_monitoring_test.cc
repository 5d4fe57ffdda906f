// SPDX-License-Identifier: Apache-2.0
//
// Debian's Prometheus scrapes real agents to which things happen, and answers every query of the
// dashboard and every alert. What is empty must be named here, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/monitoring/monitoring_files.h"
#include "tests/monitoring/prometheus_server.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// As in deploy: node-b and node-c are the fleet beside the fixture's own daemon, node-a.
constexpr char kScrape[] = R"(
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml, kube_state_metrics.yaml]
scrape_configs:
  - job_name: kube-iptables-agent
    static_configs:
      - {targets: ["127.0.0.1:10271"], labels: {node: node-a}}
      - {targets: ["127.0.0.1:10371"], labels: {node: node-b}}
      - {targets: ["10.77.2.2:10271"], labels: {node: node-c}}
)";
// A node that nobody looks after, told as kube-state-metrics tells it.
constexpr char kOneMoreNode[] = R"(
groups:
  - name: kube-state-metrics
    rules:
      - record: kube_node_info
        expr: vector(1)
        labels: {node: node-d, os_image: Debian GNU/Linux 12 (bookworm)}
)";
constexpr char kConfig[] = R"(
apiVersion: kube-iptables-agent/v1alpha1
kind: KubeIPTablesAgentConfiguration
iptablesSyncPeriod: 2s
)";

// Dashboard queries without an answer here.
const std::map<std::string, std::string> kEmptyQueries = {
    {"Errors by reason/A", "no round of these agents ends with an error"},
};

// Every alert: whether its expression has series at the end of what happens here.
const std::map<std::string, bool> kAlertHasSeries = {
    {"KubeIPTablesAgentAbsent", false},          // there are three
    {"KubeIPTablesAgentDown", true},             // node-b is killed
    {"KubeIPTablesAgentMissingOnNode", true},    // node-d
    {"KubeIPTablesAgentRestarting", false},      // none starts twice
    {"KubeIPTablesAgentMemoryHigh", false},      // some 11 MiB
    {"KubeIPTablesAgentNotReady", true},         // node-c: filter INPUT of ip6 is no base chain
    {"KubeIPTablesAgentLoopbackExposed", true},  // node-c observes
    {"KubeIPTablesAgentModeUnknown", false},     // every test has a mode
    {"KubeIPTablesAgentHintMissing", false},     // node-c observes
    {"KubeIPTablesAgentDegraded", true},         // BaseChainNotHooked
    {"KubeIPTablesAgentWriteRefused", false},    // nothing refuses
    {"KubeIPTablesAgentUnexpectedRule", false},  // the others' rules drop and redirect nothing
    {"KubeIPTablesAgentConntrackNearlyFull", false},  // some hundred entries
    {"KubeIPTablesAgentConntrackDrops", false},       // the same
    {"KubeIPTablesAgentOwnershipFight", true},        // over the jump in INPUT
    {"KubeIPTablesAgentDamageRepeated", true},        // the same
    {"KubeIPTablesAgentSyncErrors", false},           // see kEmptyQueries
    {"KubeIPTablesAgentStale", false},                // all succeed
    {"KubeIPTablesAgentChangesHeldBack", false},      // the fight is over
    {"KubeIPTablesAgentEventsOverrun", false},        // nobody writes that fast
    {"KubeIPTablesAgentConfigNotReloaded", true},
    {"KubeIPTablesAgentFeatureGateDiffers", true},  // node-a: cleanup; the others: not
    {"KubeIPTablesAgentDeprecatedFlag", true},      // node-a: --iptables-drop-bit with the gate on
    {"KubeIPTablesAgentChangesPending", true},      // node-c
    {"KubeIPTablesAgentBrokenDependent", false},    // none has audited within 30 s
    {"KubeIPTablesAgentChangeWouldBreak", false},   // the same
    {"KubeIPTablesAgentAuditStale", true},          // the same, and it has `for:`
};

class LiveMonitoringTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    ASSERT_NO_FATAL_FAILURE();
    world_.emplace();
    prometheus_ = std::make_unique<PrometheusServer>(
        kScrape,
        std::map<std::string, std::string>{{"alerts.yaml", DeployText("prometheus/alerts.yaml")},
                                           {"kube_state_metrics.yaml", kOneMoreNode}});
    ASSERT_TRUE(prometheus_->BecomesReady()) << prometheus_->Output();
    StartFleet();
    ASSERT_TRUE(WaitUntil([&] { return prometheus_->Number("sum(up)") == 3; }))
        << prometheus_->Output();
  }
  void TearDown() override {
    fleet_.clear();
    prometheus_.reset();
  }

  void StartFleet() {
    config_tree_.Write("config.yaml", kConfig);
    // Left behind by a kubelet; somebody uses a part of it.
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOff, {.family = family});
    }
    Change({"iptables-nft", "-t", "nat", "-N", "THIRD-PARTY"});
    Change({"iptables-nft", "-t", "nat", "-A", "THIRD-PARTY", "-j", "KUBE-MARK-MASQ"});
    StartOnly({"--config=" + config_tree_.Path("config.yaml"), "--iptables-mode=nft",
               "--stale-chains=retire", "--cni-conf-dir=" + no_cni_.root(),
               "--iptables-drop-bit=15"});
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
    StartBeside(
        {"--iptables-mode=legacy", "--ip-families=ipv4", "--metrics-bind-address=127.0.0.1:10371"});
    const InNetns elsewhere(world_->receiver());
    SetSysctl("ipv4/conf/receiver0/route_localnet", "1");
    Change({"nft", "add table ip6 filter; add chain ip6 filter INPUT"});
    StartBeside({"--observe", "--iptables-mode=nft", "--metrics-bind-address=10.77.2.2:10271"});
  }
  // Another agent in the calling thread's network namespace, in legacy mode.
  void StartBeside(const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {AgentProgram(), "run", "--healthz-bind-address=",
                                     "--feature-gates=IPTablesOwnershipCleanup=false",
                                     "--iptables-sync-period=2s"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    fleet_.push_back(std::make_unique<BackgroundProgram>(argv));
  }

  static void Change(const std::vector<std::string>& argv) {
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, 0) << result;
  }

  // All that happens.
  void Incidents() {
    Change({"nft", "flush ruleset"});
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
    Change({"iptables-legacy", "-F", "INPUT"});
    {
      BackgroundProgram opponent({"/bin/sh", "-c",
                                  "while :; do iptables-nft -D INPUT -j KUBE-FIREWALL 2>/dev/null; "
                                  "done"});
      ASSERT_TRUE(MetricReaches("kube_iptables_agent_ownership_fights_total", 1))
          << daemon().Output();
    }
    {
      const InNetns outside(world_->client());
      PacketSender martians(PacketWorld::MartianPath(4001), 500);
      absl::SleepFor(absl::Seconds(1));
    }
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_martian_dropped_packets_total", 100));
    config_tree_.Write("config.yaml", "kind: Unheard\n");
    ASSERT_TRUE(WaitUntil([&] {
      return prometheus_->Has("kube_iptables_agent_config_last_reload_successful == 0") &&
             prometheus_->Number("sum(kube_iptables_agent_pending_changes{node=\"node-a\"})") ==
                 0 &&
             prometheus_->Has("rate(kube_iptables_agent_martian_dropped_packets_total[30s]) > 0");
    })) << daemon().Output();
  }

  // What Grafana puts in before it asks.
  static std::string Filled(const std::string& expr) {
    return Substitute(expr, {{"job", "kube-iptables-agent"},
                             {"node", ".*"},
                             {"instance", ".*"},
                             {"__rate_interval", "30s"},
                             {"__interval", "5s"},
                             {"__range", "5m"}});
  }

  absl::StatusOr<nlohmann::json> Ask(const DashboardQuery& query) const {
    const std::string expr = Filled(query.expr);
    if (!query.label.empty()) return prometheus_->LabelValues(expr, query.label);
    if (query.instant) return prometheus_->Query(expr);
    return prometheus_->QueryRange(expr, absl::Seconds(30));
  }
  // Whether there is an answer, as is `expected`: a scrape that came too late on a busy machine is
  // made up for by the next.
  bool IsAnswered(const DashboardQuery& query, bool expected) const {
    const auto has_answer = [&] {
      const auto answer = Ask(query);
      return answer.ok() && (query.label.empty() ? HasNumber(*answer) : !answer->empty());
    };
    return expected ? WaitUntil(has_answer, absl::Seconds(3)) : has_answer();
  }

  // What is wrong with the answers to `queries`: a line each.
  std::vector<std::string> Complaints(const std::vector<DashboardQuery>& queries,
                                      const std::map<std::string, std::string>& empty) const {
    std::vector<std::string> complaints;
    for (const DashboardQuery& query : queries) {
      const auto answer = Ask(query);
      if (!answer.ok()) {
        complaints.push_back(absl::StrCat(query.name, ": ", answer.status().message()));
        continue;
      }
      const bool expected = !empty.contains(query.name);
      const bool answered = IsAnswered(query, expected);
      if (answered != expected) {
        complaints.push_back(absl::StrCat(query.name, answered ? " has" : " has no",
                                          " answer: ", Filled(query.expr)));
      }
    }
    return complaints;
  }

  // The names in node-a's /metrics, as PromQL has them.
  static std::set<std::string> Exported() {
    std::set<std::string> names;
    for (const absl::string_view line :
         absl::StrSplit(HttpGet(kMetricsPort, "/metrics").body, '\n')) {
      if (!absl::StartsWith(line, "#")) names.emplace(line.substr(0, line.find_first_of("{ ")));
    }
    return names;
  }

  const TemporaryTree no_cni_;
  const TemporaryTree config_tree_;
  std::optional<PacketWorld> world_;
  std::unique_ptr<PrometheusServer> prometheus_;
  std::vector<std::unique_ptr<BackgroundProgram>> fleet_;
};

TEST_F(LiveMonitoringTest, EveryQueryAndEveryAlertIsAnswered) {
  ASSERT_NO_FATAL_FAILURE(Incidents());

  const auto queries = DashboardQueries(DeployText("grafana/dashboard.json"));
  ASSERT_THAT(queries, IsOk());
  EXPECT_THAT(Complaints(*queries, kEmptyQueries), IsEmpty());
  const std::set<std::string> exported = Exported();
  for (const DashboardQuery& query : *queries) {
    for (const std::string& metric : MetricsIn(query.expr)) {
      EXPECT_TRUE(exported.contains(metric) || metric == "up") << query.name << ": " << metric;
    }
  }

  // Would it be noticed?
  const DashboardQuery good = {.name = "good", .expr = "up{job=\"$job\"}", .instant = true};
  const DashboardQuery broken = {.name = "broken", .expr = "sum by (up", .instant = true};
  const DashboardQuery unknown = {.name = "unknown", .expr = "kube_iptables_agent_sink_total"};
  const DashboardQuery nothing = {.name = "nothing", .expr = "0/0 * up", .instant = true};
  const DashboardQuery label = {.name = "label", .expr = "up", .label = "nodes"};
  EXPECT_THAT(Complaints({good}, {}), IsEmpty());
  EXPECT_THAT(Complaints({good}, {{"good", ""}}), ElementsAre(HasSubstr("good has answer")));
  EXPECT_THAT(Complaints({broken}, {{"broken", ""}}), ElementsAre(HasSubstr("parse error")));
  EXPECT_THAT(Complaints({unknown, nothing, label}, {}),
              ElementsAre(HasSubstr("unknown has no answer"), HasSubstr("nothing has no answer"),
                          HasSubstr("label has no answer")));

  fleet_[0]->Signal(SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return prometheus_->Has("up{node=\"node-b\"} == 0"); }));
  const auto alerts = AlertRules(DeployText("prometheus/alerts.yaml"));
  ASSERT_THAT(alerts, IsOk());
  EXPECT_EQ(alerts->size(), kAlertHasSeries.size());
  for (const AlertRule& alert : *alerts) {
    const auto answer = prometheus_->Query(alert.expr);
    ASSERT_THAT(answer, IsOk()) << alert.name;
    const auto expected = kAlertHasSeries.find(alert.name);
    ASSERT_NE(expected, kAlertHasSeries.end()) << alert.name;
    const DashboardQuery query = {.name = alert.name, .expr = alert.expr, .instant = true};
    EXPECT_EQ(IsAnswered(query, expected->second), expected->second)
        << alert.name << ": " << *answer;
    for (const std::string& metric : MetricsIn(alert.expr)) {
      // Of no audit there are findings yet: FleetAuditsTest has them.
      EXPECT_TRUE(exported.contains(metric) || metric == "up" || metric == "kube_node_info" ||
                  metric == "kube_iptables_agent_audit_findings")
          << alert.name << ": " << metric;
    }
  }

  // As Prometheus itself evaluates them: templates, too.
  ASSERT_TRUE(WaitUntil([&] {
    return prometheus_->Has("ALERTS{alertname=\"KubeIPTablesAgentDown\",alertstate=\"pending\"}");
  }));
  const auto rules = prometheus_->Get("/api/v1/rules");
  ASSERT_THAT(rules, IsOk());
  EXPECT_THAT(rules->dump(), Not(HasSubstr("\"lastError\":\"")));
  const auto active = prometheus_->Get("/api/v1/alerts");
  ASSERT_THAT(active, IsOk());
  EXPECT_THAT(active->dump(), HasSubstr("The agent of node-b has not answered"));
  for (const char* mistake : {"error expanding", "<no value>", "  "}) {
    EXPECT_THAT(active->dump(), Not(HasSubstr(mistake)));
  }
}

}  // namespace
}  // namespace kipt::testing
