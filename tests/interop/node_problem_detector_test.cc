// SPDX-License-Identifier: Apache-2.0
//
// `check --output=npd` under an emulation of node-problem-detector's custom plugin monitor, with
// the monitor configuration that is shipped. It is stricter than the monitor, which would cut a
// line that is too long and take every unknown exit status for "unknown".
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

enum Status { kOk = 0, kProblem = 1, kUnknown = 2 };

struct Condition {
  int status = -1;
  std::string message;
};

absl::Duration Seconds(const Json& text) {
  absl::Duration duration;
  EXPECT_TRUE(absl::ParseDuration(text.get<std::string>(), &duration));
  return duration;
}

class NodeProblemDetectorTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    std::ifstream file(KIPT_DEPLOY_DIR "/node-problem-detector/kube-iptables-agent.json");
    config_ = Json::parse(file);
    rule_ = config_["rules"][0];
  }

  // One run of the plugin. `replaced`: what is in the place of its program; `more`: after its
  // arguments.
  Condition Invoke(const Words& more = {}, const Words& before = {}) const {
    const Words arguments = rule_["args"];
    const absl::Time start = absl::Now();
    const ProgramResult result = RunProgram(before + Words{AgentProgram()} + arguments + more);
    EXPECT_LT(absl::Now() - start, Seconds(rule_["timeout"])) << "it would be killed";
    EXPECT_THAT(result.exit_code, AnyOf(kOk, kProblem, kUnknown)) << result;
    EXPECT_THAT(result.out, EndsWith("\n")) << result;
    EXPECT_EQ(CountOf("\n", result.out), 1) << result;
    const std::string line = result.out.substr(0, result.out.size() - 1);
    EXPECT_LE(line.size(), config_["pluginConfig"]["max_output_length"].get<size_t>()) << line;
    EXPECT_NE(line, "");
    for (const char byte : line) EXPECT_TRUE(byte >= ' ' && byte <= '~') << line;
    return {result.exit_code, line};
  }
  static void Damage() { Output({"/usr/sbin/iptables-nft", "-F", "INPUT"}); }

  Json config_;
  Json rule_;
};

// As NPD's own validation at its start.
TEST_F(NodeProblemDetectorTest, TheMonitorsConfigurationIsValid) {
  EXPECT_EQ(config_["plugin"], "custom");
  const absl::Duration timeout = Seconds(config_["pluginConfig"]["timeout"]);
  EXPECT_GT(Seconds(config_["pluginConfig"]["invoke_interval"]), absl::ZeroDuration());
  for (const Json& rule : config_["rules"]) {
    EXPECT_LE(Seconds(rule["timeout"]), timeout);
    EXPECT_TRUE(absl::StartsWith(rule["path"].get<std::string>(), "/"));
    if (rule["type"] != "permanent") continue;
    bool has_default = false;
    for (const Json& one : config_["conditions"]) has_default |= one["type"] == rule["condition"];
    EXPECT_TRUE(has_default);
  }
}

TEST_F(NodeProblemDetectorTest, RulesInPlaceAreOkAndDamageIsAProblem) {
  Sync({});
  EXPECT_EQ(Invoke().status, kOk);
  EXPECT_EQ(Invoke().message, config_["conditions"][0]["message"]);
  Damage();
  const Condition problem = Invoke();
  EXPECT_EQ(problem.status, kProblem);
  EXPECT_THAT(problem.message, StartsWith("ip failed: "));
  EXPECT_EQ(Agent({"check"}).exit_code, kExitDifferences);
  const Json json = Json::parse(Agent({"check", "--output=json"}).out);
  EXPECT_EQ(json["ready"], false);
  EXPECT_THAT(json["reason"], HasSubstr("ip failed: "));
}

TEST_F(NodeProblemDetectorTest, WhatADaemonRepairsIsNoProblem) {
  Start({});
  // Ten would be a fight.
  for (int i = 0; i < 8; ++i) {
    Damage();
    EXPECT_EQ(Invoke().status, kOk);
  }
}

TEST_F(NodeProblemDetectorTest, ALongHostileReasonIsOnePlainLine) {
  Output({"nft", "add table ip filter; add chain ip filter INPUT"});
  const Condition problem = Invoke();
  EXPECT_EQ(problem.status, kProblem);
  EXPECT_EQ(problem.message.size(), 80U);
  EXPECT_THAT(problem.message, EndsWith("..."));
  EXPECT_THAT(Invoke({"--host-root=/\x1b[31m\n\xff/none"}).message, StartsWith("unknown: "));
}

TEST_F(NodeProblemDetectorTest, WhatCannotBeKnownIsUnknown) {
  Sync({});
  const std::vector<std::string> unprivileged = {"/usr/bin/setpriv", "--inh-caps=-all",
                                                 "--bounding-set=-all"};
  const Condition powerless = Invoke({}, unprivileged);
  EXPECT_EQ(powerless.status, kUnknown);
  EXPECT_THAT(powerless.message, StartsWith("unknown: "));
  for (const char* flag : {"--config=/none", "--netns=/none", "--ip-families=ipv5"}) {
    const Condition wrong = Invoke({flag});
    EXPECT_EQ(wrong.status, kUnknown) << flag;
    EXPECT_THAT(wrong.message, StartsWith("unknown: ")) << flag;
  }
  const ProgramResult unwritten = RunProgram(
      {"/bin/sh", "-c", absl::StrCat(AgentProgram(), " check --output=npd >/dev/full; echo $?")});
  EXPECT_EQ(unwritten.out, "2\n") << unwritten;
}

// A program of iptables' that hangs, or a lock that is held, is no reason to be killed.
TEST_F(NodeProblemDetectorTest, AnAnswerThatIsLateIsUnknownBeforeItsTimeout) {
  Output({"iptables-legacy", "-t", "nat", "-N", "FOREIGN"});
  TemporaryTree tree;
  tree.Write("iptables-legacy-save", "#!/bin/sh\nsleep 30\n");
  const std::string hanging = tree.Path("iptables-legacy-save");
  ASSERT_EQ(chmod(hanging.c_str(), 0755), 0);
  InPlaceOf replaced(hanging, "/usr/sbin/xtables-legacy-multi");
  const Condition late = Invoke({"--iptables-mode=legacy"});
  EXPECT_EQ(late.status, kUnknown);
  EXPECT_THAT(late.message, StartsWith("unknown: "));
}

}  // namespace
}  // namespace kipt::testing
