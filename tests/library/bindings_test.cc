// SPDX-License-Identifier: Apache-2.0
//
// Node agents in C, C++ and Go, built of what is installed, and the daemon: the same damage
// next to kube-proxy's rules is repaired by each.
#include <cstdlib>
#include <ostream>
#include <regex>

#include "tests/interop/damage_rows.h"
#include "tests/interop/retire_fixture.h"
#include "tests/support/http_get.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

constexpr int kMetricsPort = 18080;

struct Program {
  std::string name;
  // Below ConsumersDir(); empty: the daemon.
  std::string path;
  // Where the rules of both families are there.
  std::string in_place;
  // Of each incident.
  std::string repaired;
  // Beyond the library's path.
  std::vector<std::string> environment = {};
};
// Another one in tests/library/agents_in_debian12.
std::string ConsumersDir() {
  const char* const other = std::getenv("KIPT_CONSUMERS_DIR");
  return other == nullptr ? KIPT_CONSUMERS_DIR : other;
}
void PrintTo(const Program& program, std::ostream* stream) { *stream << program.name; }

const std::string kEventInPlace = R"("family":"ip6","phase":"inPlace")";
const std::string kEventRepaired = R"("repairMicroseconds":)";
const Program kC = {"C", "c/node-agent", kEventInPlace, kEventRepaired};
const Program kGo = {"Go", "go/node-agent", "ip6 inPlace", "repaired in "};
// With the race detector, and all checks of pointers that are passed to C.
const Program kGoRace = {
    "GoRace", "go/node-agent-race", kGo.in_place, kGo.repaired, {"GODEBUG=cgocheck=2"}};
const Program kCpp = {"Cpp", "node-agent/node-agent", "ip6 in place", "repaired in "};
const Program kDaemon = {"Daemon", "", "ip6 is in place", "Repaired in "};

class NodeAgentsTest : public AgentTest, public ::testing::WithParamInterface<Program> {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    WriteSettings("IPTablesOwnershipCleanup=false");
    for (const IpFamily family : kBothFamilies) {
      ASSERT_EQ(LoadKubeProxy("1.24", {.family = family}).exit_code, 0);
    }
  }

  void WriteSettings(const std::string& gate) const {
    tree_.Write("settings", absl::StrCat(GetParam().name == "Cpp" ? "gates = " : "", gate, "\n"));
  }
  static bool IsGo() { return absl::StartsWith(GetParam().name, "Go"); }
  std::vector<std::string> Command() const {
    const Program& program = GetParam();
    const std::string settings = tree_.Path("settings");
    if (program.path.empty()) {
      return {AgentProgram(),
              "run",
              "--feature-gates=IPTablesOwnershipCleanup=false",
              "--iptables-mode=nft",
              "--observe=false",  // unlike the package's configuration file
              "--healthz-bind-address=",
              "--metrics-bind-address=",
              "--incidents-file="};
    }
    const std::string path = absl::StrCat(ConsumersDir(), "/", program.path);
    if (program.name == "Cpp") {
      return {path, absl::StrCat("--settings=", settings), "--serve=/proc/self/ns/net:nft",
              "--housekeeping=1h"};
    }
    if (IsGo()) return {path, settings, absl::StrCat(kMetricsPort)};
    return {path, settings};
  }
  static std::vector<std::string> Environment() {
    std::vector<std::string> environment = GetParam().environment;
    environment.push_back(absl::StrCat("LD_LIBRARY_PATH=", ConsumersDir(), "/libraries"));
    return environment;
  }
  // Kubelet's lines of `before` that are missing now.
  static std::vector<std::string> KubeletsMissing(const SavedRules& before) {
    std::vector<std::string> missing = before.LinesMissingIn(SavedRules::Of({}));
    std::erase_if(missing, [](const std::string& line) {
      // Kubelet's chains and its jumps; other chains' jumps to them are kube-proxy's.
      static const std::regex kubelets(
          ": (:|-A )KUBE-(MARK-(MASQ|DROP)|POSTROUTING|FIREWALL|IPTABLES-HINT|KUBELET-CANARY)( |$)"
          "|: -A [A-Z]+ .*-j KUBE-(FIREWALL|POSTROUTING)$");
      return !std::regex_search(line, kubelets);
    });
    return missing;
  }
  // By what it prints: a save while rules are written may be refused.
  bool BecomesInPlace(const BackgroundProgram& agent) const {
    return agent.Prints(GetParam().in_place);
  }

  TemporaryTree tree_;
};

TEST_P(NodeAgentsTest, RepairEveryDamageNextToKubeProxysRulesAndStopCleanly) {
  for (const Damage& row : EveryDamage()) {
    SCOPED_TRACE(row.name);
    const Netns netns = NewNetns();
    const InNetns in(netns);
    ASSERT_EQ(LoadKubeProxy("1.24", {}).exit_code, 0);
    BackgroundProgram agent(Command(), Environment());
    ASSERT_TRUE(BecomesInPlace(agent)) << agent.Output();
    const SavedRules before = SavedRules::Of({});
    if (row.asleep) {
      ASSERT_TRUE(agent.Stop());
    }
    row.strike({});
    if (row.asleep) agent.Signal(SIGCONT);
    ASSERT_TRUE(agent.Prints(GetParam().repaired)) << agent.Output();
    EXPECT_THAT(KubeletsMissing(before), IsEmpty()) << agent.Output();
    agent.Signal(SIGTERM);
    EXPECT_EQ(agent.Wait(), 0) << agent.Output();
    EXPECT_THAT(KubeletsMissing(before), IsEmpty());
  }
}

TEST_P(NodeAgentsTest, FollowSettingsAndKeepTheOldWhereTheNewAreWrong) {
  if (GetParam().path.empty()) return;  // The daemon's are tested by its own tests.
  BackgroundProgram agent(Command(), Environment());
  ASSERT_TRUE(BecomesInPlace(agent)) << agent.Output();
  const SavedRules before = SavedRules::Of({});
  WriteSettings("NoSuchGate=true");
  agent.Signal(SIGHUP);
  ASSERT_TRUE(agent.Prints("NoSuchGate")) << agent.Output();
  EXPECT_EQ(Iptables{}.Run({"-F", "KUBE-FIREWALL"}).exit_code, 0);
  ASSERT_TRUE(WaitUntil([&] { return KubeletsMissing(before).empty(); })) << agent.Output();
  if (IsGo()) {
    EXPECT_THAT(HttpGet(kMetricsPort, "/metrics").body, HasSubstr("node_agent_incidents_total 1"));
  }
  WriteSettings("IPTablesOwnershipCleanup=true");
  agent.Signal(SIGHUP);
  ASSERT_TRUE(agent.Prints("read again")) << agent.Output();
  EXPECT_EQ(Iptables{}.Run({"-F", "KUBE-FIREWALL"}).exit_code, 0);
  // The martian rule alone, and not the one that drops what is marked.
  ASSERT_TRUE(WaitUntil([] {
    const std::vector<std::string> rules = SavedRules::Of({}).Rules("filter", "KUBE-FIREWALL");
    return rules.size() == 1 && absl::StrContains(rules[0], "127.0.0.0/8");
  })) << agent.Output();
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.Wait(), 0) << agent.Output();
}

TEST_P(NodeAgentsTest, CostLittle) {
  if (!GetParam().environment.empty()) return;  // A detector costs more.
  BackgroundProgram agent(Command(), Environment());
  ASSERT_TRUE(BecomesInPlace(agent)) << agent.Output();
  absl::Duration shortest = absl::InfiniteDuration();
  // Ten that undo a repair within a second would be a fight.
  for (int i = 1; i <= 9; ++i) {
    EXPECT_EQ(Iptables{}.Run({"-D", "INPUT", "-j", "KUBE-FIREWALL"}).exit_code, 0);
    const absl::Time struck = absl::Now();
    ASSERT_TRUE(agent.Prints(GetParam().repaired, i)) << agent.Output();
    shortest = std::min(shortest, absl::Now() - struck);
  }
  EXPECT_LT(MemoryOf(agent.pid()).anonymous_kib, 32 << 10);
  EXPECT_LT(shortest, absl::Milliseconds(200));
}

#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
// Its program has no race detector.
const auto kAll = ::testing::Values(kC, kCpp, kGo, kDaemon);
#else
const auto kAll = ::testing::Values(kC, kCpp, kGo, kGoRace, kDaemon);
#endif
INSTANTIATE_TEST_SUITE_P(All, NodeAgentsTest, kAll, [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
