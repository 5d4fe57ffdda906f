// SPDX-License-Identifier: Apache-2.0
//
// The parts of the soak that read the kernel: the readers of rules, the golden rules, what is left
// of processes.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/soak/golden.h"
#include "tests/soak/judge_test.h"
#include "tests/soak/sight.h"
#include "tests/soak/soak.h"
#include "tests/support/background_program.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/status_matchers.h"

namespace kipt::soak {
namespace {

using ::testing::ElementsAre;
using testing::IpFamily;
using testing::Iptables;
using testing::IptablesMode;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::KubeletForm;
using Arguments = std::vector<std::string>;

class RulesTest : public testing::NetnsTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static IptablesMode mode() { return GetParam(); }
  static Iptables Of(IpFamily family) { return {family, "", mode()}; }

  static void MakeAll() {
    for (const IpFamily family : testing::kBothFamilies) {
      const testing::KubeletRun run =
          RunKubelet(Of(family), KubeletSequence(KubeletForm::k1_24, family));
      ASSERT_EQ(run.error, "");
    }
    ASSERT_TRUE(PutUsers({mode(), ""}, UserSet()).ok);
  }
  static Sight SeeNow() {
    SeenChains chains;
    if (mode() == IptablesMode::kLegacy) {
      for (const IpFamily family : testing::kBothFamilies) {
        AddSavedRules(Of(family).Save().out, family, chains);
      }
      return SightOf(chains);
    }
    auto reader = NftRuleReader::Create();
    EXPECT_THAT(reader, IsOk());
    auto read = (*reader)->Read();
    EXPECT_THAT(read, IsOk());
    return SightOf(*read);
  }
  // "ours masquerade/ipv4": what does not exist.
  static std::vector<std::string> Missing(const Sight& sight) {
    std::vector<std::string> missing;
    for (unsigned i = 0; i < kGuards; ++i) {
      const std::string name = NameOf(static_cast<Guard>(i));
      if (!sight.ours[i]) missing.push_back("ours " + name);
      if (!sight.theirs[i]) missing.push_back("theirs " + name);
    }
    return missing;
  }

  const testing::PrivateRun run_;
};

struct SightRow {
  const char* arguments;
  // For IPv4; IPv6 has the same but martians.
  std::vector<std::string> missing;
};
const SightRow kSightRows[] = {
    {"-t filter -D INPUT -j KUBE-FIREWALL", {"ours drop-mark", "ours martian"}},
    {"-t filter -F KUBE-FIREWALL", {"ours drop-mark", "ours martian"}},
    {"-t nat -F KUBE-MARK-MASQ", {"ours masquerade"}},
    {"-t nat -F KUBE-MARK-DROP", {"ours drop-mark"}},
    {"-t nat -F KUBE-POSTROUTING", {"ours masquerade"}},
    {"-t nat -D KUBE-POSTROUTING 1", {"ours masquerade"}},
    {"-t nat -D KUBE-POSTROUTING 3", {"ours masquerade"}},
    {"-t nat -R KUBE-POSTROUTING 1 -j RETURN", {"ours masquerade"}},
    {"-t nat -R KUBE-POSTROUTING 1 -m mark --mark 0x4000/0x4000 -j RETURN", {"ours masquerade"}},
    {"-t nat -I KUBE-POSTROUTING -j MARK --xor-mark 0x4000", {"ours masquerade"}},
    {"-t nat -R KUBE-MARK-MASQ 1 -j MARK --or-mark 0x100", {"ours masquerade"}},
    {"-t nat -R KUBE-MARK-DROP 1 -j MARK --or-mark 0x100", {"ours drop-mark"}},
    {"-t nat -F POSTROUTING", {"ours masquerade"}},
    {"-t nat -F PREROUTING", {"theirs masquerade", "theirs drop-mark"}},
    {"-t nat -F USER-MASQ", {"theirs masquerade"}},
    {"-t nat -F USER-DROPS", {"theirs drop-mark"}},
    // These change nothing.
    {"-t nat -D KUBE-POSTROUTING 2", {}},
    {"-t filter -P FORWARD DROP", {}},
    {"-t filter -A KUBE-FIREWALL -s 192.0.2.1 -m comment --comment --mark -j DROP", {}},
};

TEST_P(RulesTest, TheReaderSeesWhichGuardIsBroken) {
  MakeAll();
  const Iptables iptables = Of(IpFamily::kIpv4);
  const std::string all = iptables.Save().out;
  for (const SightRow& row : kSightRows) {
    ASSERT_THAT(Missing(SeeNow()), IsEmpty()) << row.arguments;
    const Arguments arguments = absl::StrSplit(row.arguments, ' ');
    const testing::ProgramResult result = iptables.Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << row.arguments << result;
    std::vector<std::string> expected;
    for (const std::string& one : row.missing) {
      expected.push_back(absl::StrContains(one, "martian") ? one : one + "/ipv4");
    }
    EXPECT_THAT(Missing(SeeNow()), ::testing::UnorderedElementsAreArray(expected)) << row.arguments;
    ASSERT_EQ(iptables.Replace(all).exit_code, 0);
  }
}

TEST_P(RulesTest, TheReaderSeesNothingWhereNoRuleExists) {
  EXPECT_EQ(Missing(SeeNow()).size(), 9U);
}

// kubelet's own rules, and the agent's: the golden rules are made without the agent, and must be
// what it makes of the same node.
struct SceneRow {
  const char* name;
  Scene scene;
};
const SceneRow kScenes[] = {
    {"legacy mode", {}},
    {"legacy mode, other bits", {.settings = {.bits = {20, 21}}}},
    {"legacy mode, kube-proxy 1.24", {.proxy = skew::Version{1, 24}}},
    {"legacy mode, kube-proxy 1.28", {.proxy = skew::Version{1, 28}, .services = 1}},
    {"cleanup mode", {.settings = {.cleanup = true}}},
    {"cleanup mode, no users", {.settings = {.cleanup = true}, .users = {false, false}}},
    {"cleanup mode, a user of the drop mark",
     {.settings = {.cleanup = true}, .users = {false, true}}},
    {"cleanup mode, a user of the masquerade mark",
     {.settings = {.cleanup = true}, .users = {true, false}}},
    {"cleanup mode, kube-proxy 1.24, no users",
     {.settings = {.cleanup = true}, .proxy = skew::Version{1, 24}, .users = {false, false}}},
    {"cleanup mode, kube-proxy 1.28, no users",
     {.settings = {.cleanup = true}, .proxy = skew::Version{1, 28}, .users = {false, false}}},
};

// What the agent makes of a node on which the same has happened: legacy mode, then the scene's
// mode.
absl::StatusOr<Rules> AgentsRules(const Scene& scene, IptablesMode mode) {
  const testing::ScratchDirectory files;
  if (!files.MakeDirectory("cni")) return absl::InternalError("no directory in /run");
  const auto sync = [&](const AgentSettings& settings) {
    files.WriteFile("config.yaml", settings.FileText());
    return testing::RunProgram({KIPT_AGENT_PROGRAM, "sync", "--config=" + files.Path("config.yaml"),
                                absl::StrCat("--iptables-mode=", NameOf(mode)),
                                "--cni-conf-dir=" + files.Path("cni")});
  };
  AgentSettings legacy = scene.settings;
  legacy.cleanup = false;
  sync(legacy);
  if (!PutUsers({mode, ""}, UserSet()).ok) return absl::InternalError("users");
  if (scene.proxy) {
    NewProxy({mode, ""}, *scene.proxy)
        ->Start(ServicesOf(scene.services, IpFamily::kIpv4),
                ServicesOf(scene.services, IpFamily::kIpv6));
  }
  TakeUsersAway({mode, ""}, scene.users);
  const testing::ProgramResult last = sync(scene.settings);
  // 2: in place, with findings.
  if (last.exit_code != 0 && last.exit_code != 2) return absl::InternalError(last.err + last.out);
  return SavedRules(mode);
}

TEST_P(RulesTest, TheAgentMakesTheGoldenRules) {
  for (const SceneRow& row : kScenes) {
    const testing::Netns netns = testing::NewNetns();
    const testing::InNetns inside(netns);
    const absl::StatusOr<Rules> golden = GoldenRules(row.scene, mode());
    ASSERT_THAT(golden, IsOk()) << row.name;
    const absl::StatusOr<Rules> agents = AgentsRules(row.scene, mode());
    ASSERT_THAT(agents, IsOk()) << row.name;
    EXPECT_THAT(DifferencesOf(*agents, *golden, Ledger()), IsEmpty()) << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RulesTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy),
                         [](const auto& mode) { return std::string(NameOf(mode.param)); });

// ---- processes ----

class RemainsTest : public testing::NetnsTest {
 protected:
  static std::vector<std::string> Judges(const std::set<ino_t>& namespaces) {
    Journal journal(1, "");
    JudgeRemains(namespaces, journal);
    std::vector<std::string> judges;
    for (const Violation& violation : journal.violations()) judges.push_back(violation.of);
    return judges;
  }
  static ino_t InodeOf(const testing::Netns& netns) {
    struct stat status = {};
    EXPECT_EQ(stat(netns.Path().c_str(), &status), 0);
    return status.st_ino;
  }
};

TEST_F(RemainsTest, AProcessThatIsLeftInANamespaceIsFoundAndSoIsAChild) {
  const testing::Netns netns = testing::NewNetns();
  EXPECT_THAT(Judges({InodeOf(netns)}), IsEmpty());
  std::optional<testing::BackgroundProgram> left;
  {
    const testing::InNetns inside(netns);
    left.emplace(Arguments{"sleep", "60"});
  }
  EXPECT_THAT(Judges({InodeOf(netns)}), ElementsAre("processes", "processes"));
  left.reset();
  EXPECT_THAT(Judges({InodeOf(netns)}), IsEmpty());
}

TEST_F(RemainsTest, AChildThatNobodyWaitedForIsFound) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(Judges({}), ElementsAre("processes"));
  EXPECT_THAT(Judges({}), IsEmpty()) << "its end has been collected";
}

}  // namespace
}  // namespace kipt::soak
