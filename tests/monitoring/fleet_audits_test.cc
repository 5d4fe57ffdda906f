// SPDX-License-Identifier: Apache-2.0
//
// Debian's Prometheus on /metrics of nodes, which the product writes from audits: how many would
// break at which change, by which software and at which chain; every query of both dashboards.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/node_audit.h"
#include "agent/config/settings.h"
#include "agent/endpoints/metrics.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/monitoring/monitoring_files.h"
#include "tests/support/background_program.h"
#include "tests/support/http_get.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

constexpr int kPort = 9090;

bool IsNumber(const nlohmann::json& sample) {
  const auto& text = sample.at(1).get_ref<const std::string&>();
  return std::isfinite(std::atof(text.c_str()));
}

// Whether there is a value that is a number: a quantile of nothing is NaN.
bool HasNumber(const nlohmann::json& result) {
  for (const auto& series : result) {
    if (series.contains("value") && IsNumber(series.at("value"))) return true;
  }
  return false;
}

// Debian's Prometheus in the calling thread's network namespace, and its HTTP interface.
class PrometheusServer {
 public:
  // `config` is its configuration file; `files` are next to it, by name.
  PrometheusServer(const std::string& config, const std::map<std::string, std::string>& files) {
    tree_.Write("prometheus.yaml", config);
    for (const auto& [name, text] : files) tree_.Write(name, text);
    program_.emplace(std::vector<std::string>{
        "prometheus", "--config.file=" + tree_.Path("prometheus.yaml"),
        "--storage.tsdb.path=" + tree_.Path("data"),
        absl::StrCat("--web.listen-address=127.0.0.1:", kPort), "--log.level=warn"});
  }

  bool BecomesReady() {
    return WaitUntil(
               [&] { return HttpGet(kPort, "/-/ready").status == 200 || !program_->Running(); }) &&
           program_->Running();
  }
  std::string Output() const { return program_->Output(); }

  // "data" of an answer to "query", with a parameter: "query=up". InvalidArgument: Prometheus'
  // error message.
  static absl::StatusOr<nlohmann::json> Get(const std::string& path, const std::string& parameter) {
    const ProgramResult answer =
        RunProgram({"curl", "--silent", "--noproxy", "*", "--get", "--data-urlencode", parameter,
                    absl::StrCat("http://127.0.0.1:", kPort, "/api/v1/", path)});
    const auto json = nlohmann::json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::UnavailableError(absl::StrCat(path, ": ", answer.out));
    if (json.value("status", "") == "success") return json.at("data");
    return absl::InvalidArgumentError(json.value("error", "no success, and no error"));
  }
  // The series that `expr` has now.
  static absl::StatusOr<nlohmann::json> Query(const std::string& expr) {
    auto data = Get("query", "query=" + expr);
    if (!data.ok()) return data.status();
    return data->at("result");
  }
  // The values that `label` has in the series of `selector`.
  static absl::StatusOr<nlohmann::json> LabelValues(const std::string& selector,
                                                    const std::string& label) {
    return Get(absl::StrCat("label/", label, "/values"), "match[]=" + selector);
  }
  // Whether `expr` has a series with a number in it; of one, the number of the first.
  static bool Has(const std::string& expr) {
    const auto result = Query(expr);
    return result.ok() && HasNumber(*result);
  }
  static double Number(const std::string& expr) {
    const auto result = Query(expr);
    if (!result.ok() || !HasNumber(*result)) return std::nan("");
    return std::atof(result->at(0).at("value").at(1).get_ref<const std::string&>().c_str());
  }

 private:
  const TemporaryTree tree_;
  std::optional<BackgroundProgram> program_;
};

constexpr NodeChange kChanges[] = {NodeChange::kOwnershipCleanup, NodeChange::kKubeProxyNftables,
                                   NodeChange::kKubeProxyIpvsRemoval, NodeChange::kIptablesNft};

NodeView ViewOf(const std::string& mode, const std::string& text) {
  const auto survey = agent::ParseSurvey(mode, netlink::Family::kIPv4, text, {});
  EXPECT_THAT(survey, IsOk());
  NodeView view;
  if (survey.ok()) view.surveys.push_back(*survey);
  return view;
}

NodeAudit AuditOf(const NodeView& view) {
  std::vector<agent::AuditReport> reports;
  for (const NodeChange change : kChanges) {
    reports.push_back(agent::Audit({&view, 1}, {.mode = agent::Mode::kLegacy, .change = change}));
  }
  return agent::MakeNodeAudit(std::move(reports), absl::Now());
}

class FleetAuditsTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    Publish("");
    server_.emplace(std::vector<std::string>{"/usr/bin/python3", "-m", "http.server", "9000",
                                             "--bind", "127.0.0.1", "--directory", nodes_.root()});
    const std::string scrape =
        "global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yaml, recording_rules.yaml]\n"
        "scrape_configs:\n  - job_name: kube-iptables-agent\n    honor_labels: true\n"
        "    metrics_path: /fleet\n    static_configs: [{targets: [\"127.0.0.1:9000\"]}]\n";
    // Unchanged except for their patience, which promtool tests.
    const std::string alerts = absl::StrReplaceAll(
        DeployText("prometheus/alerts.yaml"), {{"for: 30m", "for: 1s"}, {"for: 1h", "for: 1s"}});
    prometheus_ = std::make_unique<PrometheusServer>(
        scrape, std::map<std::string, std::string>{
                    {"alerts.yaml", alerts},
                    {"recording_rules.yaml", DeployText("prometheus/recording_rules.yaml")}});
    ASSERT_TRUE(prometheus_->BecomesReady()) << prometheus_->Output();
  }

  // Of so many nodes, each of which has a view.
  static std::string OfNodes(const std::string& kind, int nodes, const NodeView& view) {
    agent::Metrics metrics({.version = "test"});
    metrics.SetConfig(agent::DefaultConfig());
    metrics.SetAudit(AuditOf(view));
    metrics.Record({}, agent::AgentState());
    std::string text;
    for (int i = 0; i < nodes; ++i) {
      absl::StrAppend(&text, OfNode(absl::StrCat(kind, i), metrics, /*audits_only=*/true));
    }
    return text;
  }

  // Its series as one target's, because many targets take a processor of their own.
  // `audits_only`: without the other 300 series, which would only take time.
  static std::string OfNode(const std::string& name, const agent::Metrics& metrics,
                            bool audits_only = false) {
    std::string text;
    for (const absl::string_view line :
         absl::StrSplit(metrics.Serialize(), '\n', absl::SkipEmpty())) {
      if (line[0] == '#') continue;
      if (audits_only && !absl::StrContains(line, "_audit") && !absl::StrContains(line, "_info")) {
        continue;
      }
      const size_t end = line.find_first_of("{ ");
      const bool labelled = line[end] == '{';
      absl::StrAppend(&text, line.substr(0, end), "{instance=\"", name, "\",node=\"", name,
                      labelled ? "\"," : "\"}", line.substr(end + (labelled ? 1 : 0)), "\n");
    }
    return text;
  }
  // No scrape sees a part of it.
  void Publish(const std::string& text) const {
    nodes_.Write("next", text);
    std::filesystem::rename(nodes_.Path("next"), nodes_.Path("fleet"));
  }

  // What is wrong with the answers to `queries`, a line each.
  // `wait` is called while answers are waited for.
  std::vector<std::string> Complaints(
      const std::vector<DashboardQuery>& queries, const std::function<void()>& wait = [] {}) const {
    std::vector<std::string> complaints;
    for (const DashboardQuery& query : queries) {
      const std::string expr = Substitute(query.expr, {{"job", "kube-iptables-agent"},
                                                       {"node", ".*"},
                                                       {"instance", ".*"},
                                                       {"change", ".*"},
                                                       {"__rate_interval", "30s"},
                                                       {"__range", "5m"}});
      const auto answers = [&] {
        wait();
        if (query.label.empty()) return prometheus_->Has(expr);
        const auto values = prometheus_->LabelValues(expr, query.label);
        return values.ok() && !values->empty();
      };
      if (!WaitUntil(answers, patience_)) {
        complaints.push_back(query.name + ": " + expr);
      }
    }
    return complaints;
  }

  bool Becomes(const std::string& expr, double number) {
    const bool became =
        WaitUntil([&] { return prometheus_->Number(expr) == number; }, absl::Seconds(60));
    EXPECT_TRUE(became) << expr << " is " << prometheus_->Number(expr) << ", not " << number;
    return became;
  }

  const TemporaryTree nodes_;
  absl::Duration patience_ = absl::Seconds(60);
  std::optional<BackgroundProgram> server_;
  std::unique_ptr<PrometheusServer> prometheus_;
};

TEST_F(FleetAuditsTest, CountsNodesByChangeSoftwareAndChain) {
  const std::string tables = "*nat\n:PREROUTING ACCEPT [0:0]\n";
  NodeView old_kernel = ViewOf("nft", tables + "COMMIT\n");
  old_kernel.facts.kernel = "4.19.0";
  const NodeView portmap =
      ViewOf("nft", tables +
                        ":KUBE-MARK-MASQ - [0:0]\n:CNI-DN-0123 - [0:0]\n"
                        "-A CNI-DN-0123 -s 10.1.0.0/16 -p tcp -j KUBE-MARK-MASQ\nCOMMIT\n");
  const NodeView docker =
      ViewOf("legacy",
             "*filter\n:FORWARD ACCEPT [0:0]\n:DOCKER - [0:0]\n-A FORWARD -j DOCKER\n"
             "-A DOCKER -j RETURN\nCOMMIT\n");
  // One more node, where audits have failed since 1970.
  constexpr absl::string_view kFailing =
      R"(kube_iptables_agent_audit_last_success_timestamp_seconds{instance="failing"} 1
kube_iptables_agent_audit_period_seconds{instance="failing"} 600
)";
  Publish(absl::StrCat(OfNodes("old", 40, old_kernel), OfNodes("portmap", 100, portmap),
                       OfNodes("docker", 60, docker), kFailing));
  Becomes("job:kube_iptables_agent_audited_nodes:count", 200);
  Becomes("job:kube_iptables_agent_unaudited_nodes:count", 1);
  const auto affected = [](const std::string& by, const std::string& labels) {
    return absl::StrCat("job_change_severity", by, ":kube_iptables_agent_affected_nodes:count{",
                        labels, "}");
  };
  Becomes(affected("", R"(change="ownership-cleanup",severity="error")"), 100);
  // With the gate off kubelet keeps the chains.
  Becomes(affected("", R"(change="kube-proxy-nftables",severity="error")"), 40);
  Becomes(affected("", R"(change="iptables-nft",severity="warning")"), 60);
  const std::string portmaps = R"(change="ownership-cleanup",severity="error",)";
  Becomes(affected("_owner", portmaps + R"(owner="the CNI plugin portmap")"), 100);
  Becomes(
      affected("_kind_chain", portmaps + R"(kind="ChainUser",table="nat",chain="KUBE-MARK-MASQ")"),
      100);
  const auto firing = [](const std::string& labels) {
    return absl::StrCat(
        R"(count(ALERTS{alertstate="firing",alertname="KubeIPTablesAgentChangeWouldBreak",)",
        labels, "})");
  };
  // One for each cause, not for each node.
  Becomes(firing(R"(change="ownership-cleanup",kind="ChainUser")"), 1);
  Becomes(firing(R"(change="kube-proxy-nftables",kind="KernelTooOld")"), 1);
  const auto queries = DashboardQueries(DeployText("grafana/changes.json"));
  ASSERT_THAT(queries, IsOk());
  EXPECT_GE(queries->size(), 10U);
  EXPECT_THAT(Complaints(*queries), IsEmpty());
}

// A node to which everything happens that the overview shows, again and again.
TEST_F(FleetAuditsTest, EveryQueryOfTheOverviewIsAnsweredAndAlertsAreOfMetricsThatThereAre) {
  agent::Metrics metrics({.version = "test"});
  metrics.SetConfig(agent::DefaultConfig());
  agent::Round round = agent::BusyRound();
  round.retirement.emplace();
  round.retirement->applied = true;
  round.retirement->plan.changes = {{netlink::DeleteChain{Nat("KUBE-MARK-DROP")}, ""}};
  agent::AgentState state = agent::StateInPlace();
  state.families[0].phase = agent::FamilyPhase::kFailed;
  state.families[0].pending_changes = 7;
  state.fights = {{.chain = Filter("INPUT")}};
  state.foreign_references = {{Nat("KUBE-MARK-MASQ"), 2}};
  state.claimed = {{{Nat("KUBE-MARK-MASQ"), ":KUBE-MARK-MASQ", ""},
                    {{agent::ClaimKind::kForeignJump, "by ip nat MINE"}}}};
  absl::Time next;
  const auto happen = [&] {
    if (absl::Now() < next) return;
    next = absl::Now() + absl::Seconds(1);
    metrics.Record(round, state);
    metrics.LockWaited(absl::Milliseconds(5));
    ++state.martians_dropped;
    Publish(OfNode("busy", metrics));
  };
  const auto queries = DashboardQueries(DeployText("grafana/dashboard.json"));
  ASSERT_THAT(queries, IsOk());
  EXPECT_THAT(Complaints(*queries, happen), IsEmpty());
  patience_ = absl::Seconds(1);
  EXPECT_THAT(Complaints({{.name = "unknown", .expr = "kube_iptables_agent_sink_total"},
                          {.name = "broken", .expr = "sum by (up"},
                          {.name = "no number", .expr = "0/0 * up"},
                          {.name = "label", .expr = "up", .label = "nodes"},
                          {.name = "good", .expr = "up{job=\"$job\"}"}}),
              ElementsAre(StartsWith("unknown"), StartsWith("broken"), StartsWith("no number"),
                          StartsWith("label")));

  std::set<std::string> names = {"up", "kube_node_info", "kube_iptables_agent_audit_findings"};
  for (const absl::string_view line : absl::StrSplit(metrics.Serialize(), '\n')) {
    names.emplace(line.substr(0, line.find_first_of("{ ")));
  }
  const auto alerts = AlertRules(DeployText("prometheus/alerts.yaml"));
  ASSERT_THAT(alerts, IsOk());
  for (const AlertRule& alert : *alerts) {
    for (const std::string& metric : MetricsIn(alert.expr)) {
      EXPECT_TRUE(names.contains(metric)) << alert.name << ": " << metric;
    }
  }
  // As Prometheus itself evaluates them: templates, too.
  ASSERT_TRUE(WaitUntil(
      [&] { return prometheus_->Has("ALERTS{alertname=\"KubeIPTablesAgentNotReady\"}"); }));
  const auto rules = prometheus_->Get("rules", "");
  ASSERT_THAT(rules, IsOk());
  EXPECT_THAT(rules->dump(), Not(HasSubstr("\"lastError\":\"")));
  const auto active = prometheus_->Get("alerts", "");
  ASSERT_THAT(active, IsOk());
  EXPECT_THAT(active->dump(), HasSubstr("On busy the desired rules of family ip"));
  for (const char* mistake : {"error expanding", "<no value>", "  "}) {
    EXPECT_THAT(active->dump(), Not(HasSubstr(mistake)));
  }
}

}  // namespace
}  // namespace kipt::testing
