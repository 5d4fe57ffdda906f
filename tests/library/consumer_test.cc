// SPDX-License-Identifier: Apache-2.0
//
// Programs that others could have written, of the installed library, at work: tests/consumer and
// the one in deploy/library/README.md.
#include <unistd.h>

#include <array>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

std::string Consumer(const std::string& name) {
  return absl::StrCat(KIPT_CONSUMERS_DIR, "/", name);
}

// "net:[4026531840]", of the calling thread.
std::string OwnNamespace() {
  std::array<char, 64> name = {};
  EXPECT_GT(readlink("/proc/thread-self/ns/net", name.data(), name.size() - 1), 0);
  return name.data();
}

// One network namespace that the node agent serves.
struct Served {
  Netns netns;
  IptablesMode mode;
  std::vector<SavedRules> desired = {};  // of IPv4, of IPv6

  Iptables Of(IpFamily family) const { return {.family = family, .mode = mode}; }
  SavedRules Saved(IpFamily family) const {
    const InNetns in(netns);
    return SavedRules::Of(Of(family));
  }
  std::string Run(IpFamily family, const std::vector<std::string>& arguments) const {
    const InNetns in(netns);
    const ProgramResult result = Of(family).Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result;
    return result.out;
  }
  // A log line of the node agent about it, after the time and the severity.
  std::string Line(const std::string& text) const { return absl::StrCat(netns.Path(), ": ", text); }
};

class NodeAgentTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    WriteSettings("IPTablesOwnershipCleanup=false");
  }

  void WriteSettings(const std::string& gates) const {
    tree_.Write("settings", absl::StrCat("# the node's own\ngates = ", gates, "\n"));
  }
  std::vector<std::string> Command(const std::vector<std::string>& more) const {
    return Words{Consumer("node-agent/node-agent"),
                 absl::StrCat("--settings=", tree_.Path("settings")), "--housekeeping=50ms"} +
           more;
  }
  std::vector<std::string> ServeAll() const {
    std::vector<std::string> serve;
    for (const Served& each : served_) {
      serve.push_back(absl::StrCat("--serve=", each.netns.Path(), ":", NameOf(each.mode)));
    }
    return Command(serve);
  }

  // What kubelet makes in an empty namespace, and the jumps of IPv6 that it forgets.
  static SavedRules KubeletMakes(const Iptables& iptables) {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    Kubelet(KubeletForm::k1_27GateOff, iptables);
    SavedRules rules = SavedRules::Of(iptables);
    if (iptables.family == IpFamily::kIpv6) {
      rules.AddRule("filter", "-A INPUT -j KUBE-FIREWALL");
      rules.AddRule("filter", "-A OUTPUT -j KUBE-FIREWALL");
    }
    return rules;
  }

  void Serve(IptablesMode mode) {
    served_.push_back({.netns = NewNetns(), .mode = mode});
    for (const IpFamily family : kBothFamilies) {
      served_.back().desired.push_back(KubeletMakes(served_.back().Of(family)));
    }
  }
  bool AllInPlace() const {
    return WaitUntil([&] {
      return std::all_of(served_.begin(), served_.end(), [](const Served& each) {
        return each.Saved(IpFamily::kIpv4) == each.desired[0] &&
               each.Saved(IpFamily::kIpv6) == each.desired[1];
      });
    });
  }

  // The namespaces in which the host program found itself, one for each line.
  static std::vector<std::string> Housekeeping(const std::string& output) {
    std::vector<std::string> seen;
    for (const absl::string_view line : absl::StrSplit(output, '\n')) {
      if (absl::StrContains(line, "housekeeping: ")) seen.emplace_back(line);
    }
    return seen;
  }

  TemporaryTree tree_;
  std::vector<Served> served_;
};

class TwoNamespacesTest : public NodeAgentTest {
 protected:
  void SetUp() override {
    NodeAgentTest::SetUp();
    Serve(IptablesMode::kNft);
    Serve(IptablesMode::kLegacy);
  }
};

TEST_F(TwoNamespacesTest, AreRepairedAsOftenAsTheyAreDamagedWhileTheHostRuns) {
  BackgroundProgram agent(ServeAll());
  ASSERT_TRUE(AllInPlace()) << agent.Output();
  const size_t before = Housekeeping(agent.Output()).size();
  for (int round = 1; round <= 3; ++round) {
    for (const Served& each : served_) each.Run(IpFamily::kIpv4, {"-F"});
    for (const Served& each : served_) {
      ASSERT_TRUE(agent.Prints(each.Line("incident: "), round)) << agent.Output();
    }
    ASSERT_TRUE(AllInPlace()) << agent.Output();
  }
  for (const char* writer :
       {" damaged by iptables-nft", " damaged by a process that was not seen"}) {
    EXPECT_TRUE(agent.Prints(writer)) << agent.Output();
  }
  for (const Served& each : served_) {
    each.Run(IpFamily::kIpv6, {"-t", "nat", "-F"});
    ASSERT_TRUE(agent.Prints(each.Line("incident: "), 4)) << agent.Output();
  }
  ASSERT_TRUE(AllInPlace()) << agent.Output();
  ASSERT_TRUE(WaitUntil([&] { return Housekeeping(agent.Output()).size() > before + 3; }));
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.Wait(), 0) << agent.Output();
  EXPECT_THAT(Housekeeping(agent.Output()), Each(EndsWith("in " + OwnNamespace())));
  // They stay, and the host's own namespace holds nothing.
  ASSERT_TRUE(AllInPlace()) << agent.Output();
  EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(IptablesLegacyTables(family), "");
}

struct StartRow {
  const char* name;
  const char* serve;
  const char* message;
};

class RefusedStartTest : public NodeAgentTest, public ::testing::WithParamInterface<StartRow> {};

// The first namespace can be served: the thread must have left that one, too.
TEST_P(RefusedStartTest, LeavesTheHostsThreadWhereItWas) {
  const Netns good = NewNetns();
  const ProgramResult result =
      RunProgram(Command({absl::StrCat("--serve=", good.Path(), ":nft"), GetParam().serve}));
  EXPECT_EQ(result.exit_code, 1) << result;
  EXPECT_THAT(result.out, HasSubstr(GetParam().message));
  EXPECT_THAT(Housekeeping(result.out), AllOf(SizeIs(2), Each(EndsWith("in " + OwnNamespace()))));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedStartTest,
    ::testing::Values(
        StartRow{"NoNamespaceThere", "--serve=/nonexistent:nft", "NOT_FOUND"},
        StartRow{"NotANamespace", "--serve=/dev/null:legacy", "INVALID_ARGUMENT"},
        StartRow{"AnotherKindOfNamespace", "--serve=/proc/self/ns/uts:nft", "INVALID_ARGUMENT"},
        StartRow{"NoSuchMode", "--serve=/proc/self/ns/net:xtables", "INVALID_ARGUMENT"}),
    [](const auto& row) { return std::string(row.param.name); });

// The rows of each release are in tests/featuregates.
TEST(GatesTest, DerivesTheModeFromFeatureGatesAlone) {
  const std::string gates = Consumer("gates/gates");
  EXPECT_EQ(RunProgram({gates, "1.25", ""}).out, "legacy\n");
  EXPECT_EQ(RunProgram({gates, "1.25", "AllAlpha=true"}).out, "cleanup\n");
  const ProgramResult locked = RunProgram({gates, "1.28", "IPTablesOwnershipCleanup=false"});
  EXPECT_EQ(locked.exit_code, 64);
  EXPECT_EQ(locked.err,
            "cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to "
            "true\n");
}

class ReadmeProgramTest : public AgentTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ReadmeProgramTest, DoesWhatTheReadmeDescribes) {
  BackgroundProgram smallest({Consumer(GetParam())});
  ASSERT_TRUE(smallest.Prints("ip in place")) << smallest.Output();
  const Iptables iptables{.family = IpFamily::kIpv4};
  const SavedRules whole = SavedRules::Of(iptables);
  EXPECT_THAT(whole.Rules("filter", "KUBE-FIREWALL"), SizeIs(1));
  EXPECT_EQ(iptables.Run({"-F"}).exit_code, 0);
  ASSERT_TRUE(smallest.Prints("iptables-nft")) << smallest.Output();
  ASSERT_TRUE(WaitUntil([&] { return SavedRules::Of(iptables) == whole; }));
}

INSTANTIATE_TEST_SUITE_P(All, ReadmeProgramTest,
                         ::testing::Values("readme/smallest", "pkg-config/smallest"),
                         [](const auto& row) {
                           return std::string(row.index == 0 ? "ByCMake" : "ByPkgConfig");
                         });

}  // namespace
}  // namespace kipt::testing
