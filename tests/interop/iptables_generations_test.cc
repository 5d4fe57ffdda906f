// SPDX-License-Identifier: Apache-2.0
//
// One kernel, several iptables: the node's own, and those that containers bring along. Debian 11
// has 1.8.7, Debian 12 (this machine) 1.8.9, Debian 13 1.8.11.
#include <unistd.h>

#include <tuple>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

struct GenerationRow {
  const char* name;
  const char* release;
  const char* version;
};
constexpr GenerationRow kGenerations[] = {
    {"Iptables1_8_7", "bullseye", "v1.8.7 (nf_tables)"},
    {"Iptables1_8_11", "trixie", "v1.8.11 (nf_tables)"},
};

// Of Debian, this machine's own among them.
constexpr const char* kReleases[] = {"bullseye", "", "trixie"};
std::string NameOfRelease(const std::string& release) { return release.empty() ? "Own" : release; }

constexpr AgentSettings Legacy(KubeletBits bits = {}) { return {false, bits}; }

// kubelet 1.27 forgets these (agent: they exist).
void AddIpv6Jumps(const Iptables& iptables) {
  if (iptables.family == IpFamily::kIpv4) return;
  for (const char* chain : {"INPUT", "OUTPUT"}) {
    const ProgramResult result = iptables.Run({"-I", chain, "-j", "KUBE-FIREWALL"});
    EXPECT_EQ(result.exit_code, 0) << result;
  }
}

class IptablesGenerationsTest : public AgentTest,
                                public ::testing::WithParamInterface<GenerationRow> {
 protected:
  Iptables Theirs(IpFamily family) const { return {family, ChrootDir(GetParam().release)}; }
  // Everything of legacy mode, written by the other generation.
  void TheyWrite(KubeletBits bits) const {
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOff, Theirs(family), bits);
      AddIpv6Jumps(Theirs(family));
    }
  }
};

TEST_P(IptablesGenerationsTest, IsTheNamedRelease) {
  EXPECT_THAT(Theirs(IpFamily::kIpv4).Run({"--version"}).out, HasSubstr(GetParam().version));
}

TEST_P(IptablesGenerationsTest, ReadsOurRulesAsItsOwn) {
  for (const KubeletBits bits : {KubeletBits{14, 15}, KubeletBits{0, 31}, KubeletBits{31, 5}}) {
    const Netns ours = NewNetns();
    const Netns theirs = NewNetns();
    for (const IpFamily family : kBothFamilies) {
      SavedRules expected;
      {
        const InNetns in(theirs);
        Kubelet(KubeletForm::k1_27GateOff, Theirs(family), bits);
        AddIpv6Jumps(Theirs(family));
        expected = SavedRules::Of(Theirs(family));
      }
      const InNetns in(ours);
      Sync(Legacy(bits));
      EXPECT_EQ(SavedRules::Of(Theirs(family)), expected);
    }
  }
}

TEST_P(IptablesGenerationsTest, WroteWhatWeReadAsDone) {
  for (const KubeletBits bits : {KubeletBits{14, 15}, KubeletBits{31, 5}}) {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    TheyWrite(bits);
    ExpectNothingPlanned(Legacy(bits));
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, IptablesGenerationsTest, ::testing::ValuesIn(kGenerations),
                         [](const auto& row) { return std::string(row.param.name); });

class ConnLabelGenerationsTest
    : public AgentTest,
      public ::testing::WithParamInterface<std::tuple<const char*, IptablesMode, bool>> {
 protected:
  static IptablesMode Mode() { return std::get<1>(GetParam()); }
  static Iptables Of(const std::string& release, IpFamily family) {
    return {family, release.empty() ? "" : ChrootDir(release), Mode()};
  }
  static Iptables Theirs(IpFamily family) { return Of(std::get<0>(GetParam()), family); }

  // `sync` or `plan` with the gate on must end with 0.
  static void ExpectWell(const std::string& command) {
    const ProgramResult result =
        Agent({command, absl::StrCat("--iptables-mode=", NameOf(Mode())),
               absl::StrCat("--feature-gates=ConnLabelMarking=true,IPTablesOwnershipCleanup=",
                            std::get<2>(GetParam()) ? "true" : "false")});
    EXPECT_EQ(result.exit_code, kExitOk) << result;
  }
};

TEST_P(ConnLabelGenerationsTest, SavesWhatEachRestoresAndWeTakeForInPlace) {
  ExpectWell("sync");
  std::vector<std::string> saved;
  for (const IpFamily family : kBothFamilies) {
    std::string text;
    // With iptables-legacy, a save of all tables needs a /proc in the chroot.
    for (const char* table : kIptablesTables) {
      const ProgramResult result = Theirs(family).Save(table);
      EXPECT_EQ(result.exit_code, 0) << result;
      absl::StrAppend(&text, result.out);
    }
    EXPECT_THAT(text, HasSubstr("connlabel --label \"114\" --set"));
    saved.push_back(text);
  }
  for (const char* other : kReleases) {
    SCOPED_TRACE(absl::StrCat("restored by ", NameOfRelease(other)));
    const Netns netns = NewNetns();
    const InNetns in(netns);
    for (const IpFamily family : kBothFamilies) {
      const ProgramResult restored =
          Of(other, family).Replace(saved[family == IpFamily::kIpv4 ? 0 : 1]);
      EXPECT_EQ(restored.exit_code, 0) << restored;
    }
    ExpectWell("plan");
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, ConnLabelGenerationsTest,
                         ::testing::Combine(::testing::ValuesIn(kReleases),
                                            ::testing::ValuesIn(kBothModes), ::testing::Bool()),
                         [](const auto& row) {
                           return absl::StrCat(NameOfRelease(std::get<0>(row.param)),
                                               TestNameOf(std::get<1>(row.param)),
                                               std::get<2>(row.param) ? "Cleanup" : "Kubelet");
                         });

class OldReaderTest : public AgentTest {
 protected:
  static constexpr char kDropAll[] =
      "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" "
      "-j DROP";
  const Iptables old_{IpFamily::kIpv4, ChrootDir("bullseye")};
  const Iptables own_{IpFamily::kIpv4};
};

// kubernetes #112477: a container's older iptables saves and restores the host's rules.
TEST_F(OldReaderTest, WhatItsSaveAndRestoreDestroyedIsRepaired) {
  Kubelet(KubeletForm::k1_27GateOff, own_);
  const std::string text = old_.Save().out;
  const ProgramResult restored =
      RunProgram({"/usr/sbin/chroot", old_.chroot_dir, "/usr/sbin/iptables-nft-restore"}, text);
  ASSERT_EQ(restored.exit_code, 0) << restored;
  EXPECT_THAT(SavedRules::Of(own_).Rules("filter", "KUBE-FIREWALL"), Contains(kDropAll));
  Sync(Legacy());
  const SavedRules repaired = SavedRules::Of(own_);
  const Netns fresh = NewNetns();
  const InNetns in(fresh);
  Sync(Legacy());
  EXPECT_EQ(repaired, SavedRules::Of(own_));
}

class SavedByNftTest : public AgentTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string Dir() { return *GetParam() == '\0' ? "" : ChrootDir(GetParam()); }
  static Iptables Theirs(IpFamily family) { return {family, Dir()}; }
  static ProgramResult Nft(const std::vector<std::string>& arguments) {
    const Words chroot = Dir().empty() ? Words{} : Words{"/usr/sbin/chroot", Dir()};
    return RunProgram(chroot + Words{"/usr/sbin/nft"} + arguments);
  }
  static void Add(const std::string& rules) {
    const ProgramResult result = RunProgram({"nft", "-f", "-"}, rules);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  static ProgramResult Firewall() { return Iptables{IpFamily::kIpv4}.Run({"-S", "KUBE-FIREWALL"}); }
  static bool Load(const std::string& ruleset) {
    // There is no /dev/stdin in a chroot.
    const std::string file = absl::StrCat("/tmp/kipt-saved-", getpid(), ".nft");
    std::ofstream(Dir() + file) << ruleset;
    const ProgramResult loaded = Nft({"-f", file});
    std::filesystem::remove(Dir() + file);
    return loaded.exit_code == 0;
  }
  // Of this node, after a boot: what the release's nft makes of its own listing. Where it refuses
  // that, the audit has reported it.
  static void SaveAndLoad() {
    const std::string saved = Nft({"list", "ruleset"}).out;
    const std::string ipv4 = Nft({"list", "ruleset", "ip"}).out;
    Output({"nft", "flush", "ruleset"});
    const bool loads = Load(saved);
    const TemporaryTree host;
    host.Write("etc/nftables.conf", saved);
    const std::string audit = Agent({"audit", "--host-root=" + host.root()}).out;
    EXPECT_THAT(audit, HasSubstr("error   SavedRules"));
    EXPECT_EQ(absl::StrContains(audit, "nft cannot read lines of this file"), !loads) << saved;
    if (!loads) {
      ASSERT_TRUE(Load(ipv4)) << ipv4;
    }
    EXPECT_NE(Firewall().exit_code, 0) << "the native copy is there";
  }
  // Written by kubelet, or by us, and loaded again.
  static void LoadCopies(bool ours, bool kube_proxy = false) {
    if (ours) Sync(Legacy());
    for (const IpFamily family : kBothFamilies) {
      if (!ours) Kubelet(KubeletForm::k1_27GateOff, Theirs(family));
      if (!ours) AddIpv6Jumps(Theirs(family));
      if (kube_proxy) Theirs(family).Run({"-t", "nat", "-N", "KUBE-PROXY-CANARY"});
    }
    SaveAndLoad();
  }
  static std::vector<SavedRules> AfterSync(const AgentSettings& settings) {
    Sync(settings);
    ExpectNothingPlanned(settings);
    return {SavedRules::Of({IpFamily::kIpv4}), SavedRules::Of({IpFamily::kIpv6})};
  }
};

TEST_P(SavedByNftTest, CopiesOfOurRulesAreReplaced) {
  const Netns fresh = NewNetns();
  std::vector<SavedRules> expected;
  {
    const InNetns in(fresh);
    expected = AfterSync(Legacy());
  }
  for (const bool ours : {false, true}) {
    const Netns netns = NewNetns();
    const InNetns in(netns);
    LoadCopies(ours);
    std::vector<SavedRules> after = AfterSync(Legacy());
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i], expected[i]) << "written by " << (ours ? "this agent" : "kubelet");
    }
  }
}

TEST_P(SavedByNftTest, CopiesThatKubeProxyKeepsStayAndOneFindingNamesTheCause) {
  LoadCopies(/*ours=*/false, /*kube_proxy=*/true);
  for (const char* command : {"plan", "sync", "plan"}) {
    const ProgramResult result = Agent(command, Legacy());
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    EXPECT_THAT(result.out, HasSubstr("! TableIncompatible (warning) ip nat KUBE-")) << result;
    EXPECT_THAT(result.out, HasSubstr("nft loaded it from a saved ruleset")) << result;
  }
  const std::string after = Output({"nft", "list", "table", "ip", "nat"});
  for (const char* rule : {"meta mark set meta mark | 0x00004000", "masquerade"}) {
    EXPECT_THAT(after, HasSubstr(rule));
  }
  EXPECT_THAT(Firewall().out, HasSubstr("! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"));
  EXPECT_EQ(Firewall().exit_code, 0) << "nothing native is left";
}

// Each differs from a copy in one expression.
TEST_P(SavedByNftTest, SimilarRulesOfAnAdministratorStay) {
  LoadCopies(/*ours=*/false);
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"filter KUBE-FIREWALL", "ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 ct status dnat drop"},
      {"filter KUBE-FIREWALL",
       "ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/16 ct status dnat counter packets 0 bytes 0 "
       "drop"},
      {"filter KUBE-FIREWALL",
       "ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 ct status snat counter packets 0 bytes 0 "
       "drop"},
      {"filter KUBE-FIREWALL",
       "iifname \"eth0\" ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 ct status dnat counter "
       "packets 0 bytes 0 drop"},
      {"filter KUBE-FIREWALL", "ct status dnat counter packets 0 bytes 0 drop"},
      {"filter KUBE-FIREWALL",
       "meta mark & 0x00010000 == 0x00010000 counter packets 0 bytes 0 drop"},
      {"nat KUBE-POSTROUTING", "counter packets 0 bytes 0"},
      {"nat KUBE-MARK-MASQ", "meta mark set meta mark | 0x00004000"},
      {"nat KUBE-MARK-MASQ", "counter packets 0 bytes 0 meta mark set 0x00004000"},
      {"nat KUBE-POSTROUTING", "ip daddr 192.0.2.1 counter packets 0 bytes 0 masquerade"},
      {"nat KUBE-POSTROUTING", "counter packets 0 bytes 0 masquerade random,persistent"}};
  for (const auto& [chain, rule] : rows) Add("add rule ip " + chain + " " + rule + "\n");
  Agent("sync", Legacy());
  const std::string left = Output({"nft", "list", "ruleset", "ip"});
  for (const auto& [chain, rule] : rows) EXPECT_THAT(left, HasSubstr("\t" + rule + "\n"));
}

INSTANTIATE_TEST_SUITE_P(Releases, SavedByNftTest, ::testing::ValuesIn(kReleases),
                         [](const auto& row) { return NameOfRelease(row.param); });

TEST_F(OldReaderTest, ARuleThatIptablesCannotListIsAFindingOfPlanAndAudit) {
  Sync(Legacy());
  Output({"iptables", "-N", "OTHER"});
  Output({"iptables", "-P", "FORWARD", "ACCEPT"});
  for (const char* chain : {"FORWARD", "OTHER"}) {
    Output({"nft", "add", "rule", "ip", "filter", chain, "ct", "state", "invalid", "drop"});
    EXPECT_THAT(own_.Save("filter").out, HasSubstr("is incompatible"));
    EXPECT_THAT(Agent("plan", Legacy()).out,
                HasSubstr(absl::StrCat("! TableIncompatible (warning) ip filter ", chain)));
    EXPECT_THAT(Agent("audit", Legacy()).out, HasSubstr("warning TableIncompatible"));
    Output({"nft", "flush", "chain", "ip", "filter", chain});
  }
}

}  // namespace
}  // namespace kipt::testing
