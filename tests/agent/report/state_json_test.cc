// SPDX-License-Identifier: Apache-2.0
//
// State and events as JSON, as the C API returns them.
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/events.h"
#include "agent/report/report.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using Json = nlohmann::json;
const netlink::ChainId kInput = {netlink::Family::kIPv6, netlink::Table::kFilter, "INPUT"};
const absl::Time kNoon = absl::FromUnixMillis(1'800'000'000'123);

Suspected By() {
  return {.writers = {{.pid = 42,
                       .command = "nft",
                       .command_line = "nft --password hunter2",
                       .unit = "a.service",
                       .parent_pid = 41,
                       .parent_command = "bash"}},
          .others = false};
}

// With something in every list.
AgentState FullAgentState() {
  const ExistingItem item = {kInput, "-A INPUT -j KUBE-FIREWALL", "the KEP"};
  return {.started = kNoon,
          .emulated_version = {1, 27},
          .mode = Mode::kLegacy,
          .iptables_mode = "nft",
          .watching = "kernel events",
          .families = {{.family = netlink::Family::kIPv6,
                        .phase = FamilyPhase::kFailed,
                        .since = kNoon,
                        .reason = "not permitted",
                        .pending_changes = 3}},
          .findings = {{.condition = Condition::kBitConflict, .chain = kInput, .message = "m"}},
          .in_place = {item},
          .stale = {item},
          .of_kube_proxy = {item},
          .fights = {{.chain = kInput,
                      .item = "-A INPUT -j KUBE-FIREWALL",
                      .rounds = 10,
                      .since = kNoon,
                      .wait = absl::Milliseconds(200),
                      .by = By(),
                      .missing = true}},
          .claimed = {{.item = item, .claims = {{ClaimKind::kForeignJump, "-j X"}}}},
          .foreign_references = {{kInput, 2}},
          .route_localnet = {.interfaces = {"all"}},
          .martians_dropped = 9,
          .last_check = kNoon,
          .checks = 5,
          .incidents = 1,
          .foreign_rules = 7};
}

DaemonState FullState() {
  return {FullAgentState(),
          {.incidents = {"then it was repaired"},
           .foreign_rules = {"-j DROP"},
           .blockers = {"ShadowedJump"}},
          "a typo"};
}

Event FullEvent(int damage) {
  Event event = {.trigger = Trigger::kChange, .duration = absl::Microseconds(1500)};
  Incident incident = {.by = By(), .latency = absl::Microseconds(900)};
  for (int i = 0; i < damage; ++i) {
    incident.damage.push_back({kInput, DamageKind::kJumpMissing, absl::StrCat("-A INPUT ", i)});
    incident.lost_jumps.push_back({kInput, absl::StrCat("cali-", i)});
  }
  event.incident = incident;
  event.fights_begun = FullState().fights;
  event.foreign_rules =
      NewForeignRules{.rules = {{kInput, ForeignRuleKind::kDrop, "-s 10.0.0.0/8 -j DROP"}},
                      .counts = {{{kInput, ForeignRuleKind::kDrop}, 1}},
                      .by = By()};
  event.lost_proxy_jumps = LostProxyJumps{.jumps = {{kInput, "KUBE-SERVICES"}}, .by = By()};
  event.new_blockers = {{.finding = FullState().findings[0], .by = By()}};
  event.changed_families = FullState().families;
  return event;
}

TEST(DaemonStateJsonTest, HasEveryValue) {
  const std::string line = DaemonStateJson(FullState());
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, Not(HasSubstr("hunter2"))) << "arguments may hold secrets";
  const Json json = Json::parse(line);
  EXPECT_EQ(json["apiVersion"], "kube-iptables-agent/v1");
  EXPECT_EQ(json["kind"], "State");
  EXPECT_EQ(json["ready"], false);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("not permitted"));
  EXPECT_EQ(json["started"], "2027-01-15T08:00:00.123Z");
  EXPECT_EQ(json["lastSuccess"], nullptr) << "never";
  EXPECT_EQ(json["families"], Json::parse(R"([{"family": "ip6", "phase": "failed",
      "since": "2027-01-15T08:00:00.123Z", "reason": "not permitted",
      "pendingChanges": 3, "notReadyBecause": "not permitted"}])"));
  EXPECT_EQ(json["findings"][0]["condition"], "BitConflict");
  EXPECT_EQ(json["inPlace"], json["stale"]);
  EXPECT_EQ(json["inPlace"], json["ofKubeProxy"]);
  EXPECT_EQ(json["kept"][0]["claims"][0]["kind"], "foreignJump");
  EXPECT_EQ(json["foreignReferences"], Json::parse(R"([{"family": "ip6", "table": "filter",
      "chain": "INPUT", "count": 2}])"));
  EXPECT_EQ(json["fights"], Json::parse(R"([{"family": "ip6", "table": "filter",
      "chain": "INPUT", "writers": [{"pid": 42, "command": "nft", "unit": "a.service",
      "parentPid": 41, "parentCommand": "bash"}], "otherWriters": false,
      "text": "-A INPUT -j KUBE-FIREWALL", "missing": true, "rounds": 10,
      "since": "2027-01-15T08:00:00.123Z", "waitMilliseconds": 200}])"));
  EXPECT_EQ(json["martians"], Json::parse(R"({"ruleExists": false, "packetsDropped": 9,
      "droppedElsewhere": "", "routeLocalnetUnread": "", "routeLocalnet": ["all"], "exposed": true})"));
  EXPECT_EQ(json["checks"], 5);
  EXPECT_EQ(json["incidentCount"], 1);
  EXPECT_EQ(json["recentIncidents"][0], "then it was repaired");
  EXPECT_EQ(json["foreignRuleCount"], 7);
  EXPECT_EQ(json["recentForeignRules"][0], "-j DROP");
  EXPECT_EQ(json["recentBlockers"][0], "ShadowedJump");
  EXPECT_EQ(json["configProblem"], "a typo");
  EXPECT_EQ(json["mustRestart"], "");
}

TEST(DaemonStateJsonTest, NothingKnownIsNullOrEmptyAndEveryFieldIsThere) {
  const Json empty = Json::parse(DaemonStateJson({}));
  const Json full = Json::parse(DaemonStateJson(FullState()));
  for (const auto& [name, value] : full.items()) EXPECT_TRUE(empty.contains(name)) << name;
  EXPECT_EQ(empty["foreignRuleCount"], nullptr);
  EXPECT_EQ(empty["started"], nullptr);
  EXPECT_EQ(empty["families"], Json::array());
}

TEST(RecentEventsTest, AreTheLastTenNewestFirstWithoutTheWritersArguments) {
  RecentEvents recent;
  for (int i = 1; i <= 12; ++i) {
    Event event = FullEvent(1);
    event.incident->by.writers[0].command = absl::StrCat("writer-", i, ";");
    recent.Note(kNoon, event);
  }
  ASSERT_THAT(recent.incidents, SizeIs(10));
  EXPECT_THAT(recent.incidents.front(), AllOf(HasSubstr("2027-01-15"), HasSubstr("writer-12;")));
  EXPECT_THAT(recent.incidents.back(), HasSubstr("writer-3;"));
  EXPECT_THAT(recent.foreign_rules.front(), HasSubstr("-s 10.0.0.0/8 -j DROP"));
  EXPECT_THAT(recent.blockers.front(), HasSubstr("BitConflict"));
  for (const auto* lines : {&recent.incidents, &recent.foreign_rules, &recent.blockers}) {
    EXPECT_THAT(*lines, ::testing::Each(Not(HasSubstr("hunter2"))));
  }
  recent.Note(kNoon, {});
  EXPECT_THAT(recent.incidents.front(), HasSubstr("writer-12;")) << "a quiet round";
}

TEST(DaemonStateTest, TheStatusLineHasTheProgramsProblemsToo) {
  DaemonState state;
  EXPECT_EQ(StatusLine(state), "in place");
  state.config_problem = "config.yaml:3: wrong\n";
  state.listen_problem = "127.0.0.1:10356 is in use";
  EXPECT_EQ(StatusLine(state),
            R"(configuration not reloaded: config.yaml:3: wrong\n; 127.0.0.1:10356 is in use)");
  state.must_restart = "--iptables-mode";
  EXPECT_THAT(StatusLine(state), StartsWith("must restart: --iptables-mode; configuration"));
}

TEST(EventJsonTest, HasEveryValue) {
  const std::string line = EventJson(kNoon, FullEvent(1));
  EXPECT_THAT(line, AllOf(Not(HasSubstr("\n")), Not(HasSubstr("hunter2"))));
  const Json json = Json::parse(line);
  EXPECT_EQ(json["kind"], "Event");
  EXPECT_EQ(json["time"], "2027-01-15T08:00:00.123Z");
  EXPECT_EQ(json["trigger"], "change");
  EXPECT_EQ(json["durationMicroseconds"], 1500);
  EXPECT_EQ(json["incident"]["damage"], Json::parse(R"([{"family": "ip6", "table": "filter",
      "chain": "INPUT", "kind": "jump_missing", "text": "-A INPUT 0"}])"));
  EXPECT_EQ(json["incident"]["repairMicroseconds"], 900);
  EXPECT_EQ(json["fightsBegun"], Json::parse(DaemonStateJson(FullState()))["fights"]);
  EXPECT_EQ(json["fightsEnded"], Json::array());
  EXPECT_EQ(json["newForeignRules"]["rules"][0]["text"], "-s 10.0.0.0/8 -j DROP");
  EXPECT_EQ(json["newForeignRules"]["counts"][0]["count"], 1);
  EXPECT_EQ(json["lostProxyJumps"]["jumps"][0]["target"], "KUBE-SERVICES");
  EXPECT_EQ(json["lostProxyJumps"]["writers"], json["fightsBegun"][0]["writers"]);
  EXPECT_EQ(json["newBlockers"][0]["condition"], "BitConflict");
  EXPECT_EQ(json["newBlockers"][0]["writers"], json["fightsBegun"][0]["writers"]);
  EXPECT_EQ(json["changedFamilies"][0]["phase"], "failed");
}

TEST(EventJsonTest, AQuietRoundHasNulls) {
  const Json json = Json::parse(EventJson(kNoon, {}));
  EXPECT_EQ(json["incident"], nullptr);
  EXPECT_EQ(json["newForeignRules"], nullptr);
  EXPECT_EQ(json["lostProxyJumps"], nullptr);
  EXPECT_EQ(json["newBlockers"], Json::array());
}

TEST(EventJsonTest, ListsAreCutUntilTheyFit) {
  const std::string line = EventJson(kNoon, FullEvent(10'000), 4096);
  EXPECT_THAT(line, SizeIs(Le(4096)));
  const Json incident = Json::parse(line)["incident"];
  EXPECT_EQ(incident["damageCount"], 10'000) << "what was cut is counted";
  EXPECT_GT(incident["damage"].size(), 0);
  EXPECT_LT(incident["damage"].size(), 64);
  EXPECT_THAT(EventJson(kNoon, FullEvent(10'000)), SizeIs(Le(64 << 10)));
}

TEST(StateJsonTest, BytesOfOthersAreEscaped) {
  DaemonState state = FullState();
  state.fights[0].by.writers[0].command = "a\xff\x1b[31m\u202e";
  const std::string line = DaemonStateJson(state);
  for (const char byte : line) ASSERT_TRUE(byte >= ' ' && byte < 0x7f) << line;
}

// deploy/reference.md has every field, as `name` or `name[]`.
TEST(StateJsonTest, EveryFieldIsInTheReference) {
  const std::string reference = FileText(KIPT_DEPLOY_DIR "/reference.md");
  const auto section = reference.substr(reference.find("## JSON"));
  const std::string json = section.substr(0, section.find("\n## "));
  std::set<std::string> missing;
  const auto visit = [&](const auto& self, const Json& value) -> void {
    for (const auto& [name, inner] : value.items()) {
      if (value.is_object() && !absl::StrContains(json, absl::StrCat("`", name, "`")) &&
          !absl::StrContains(json, absl::StrCat("`", name, "[]`"))) {
        missing.insert(name);
      }
      if (inner.is_structured()) self(self, inner);
    }
  };
  visit(visit, Json::parse(DaemonStateJson(FullState())));
  visit(visit, Json::parse(EventJson(kNoon, FullEvent(1))));
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace kipt::agent
