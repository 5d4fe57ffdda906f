// SPDX-License-Identifier: Apache-2.0
//
// What kubelets of every form left behind, with any bits, in a family or an iptables mode that is
// managed no longer; and the ways to have it removed: by policy, and by `retire`.
#include <csignal>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/retire_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using ::testing::IsSupersetOf;

using LinesByFamily = std::map<IpFamily, Lines>;

IptablesMode OtherThan(IptablesMode mode) {
  return mode == IptablesMode::kNft ? IptablesMode::kLegacy : IptablesMode::kNft;
}

class RetirePathsTest : public RetireTest {
 protected:
  static LinesByFamily Stands(IptablesMode mode) {
    LinesByFamily lines;
    for (const IpFamily family : kBothFamilies) {
      lines[family] = LinesOf({.family = family, .mode = mode});
    }
    return lines;
  }
  static LinesByFamily BaseChains(IptablesMode mode) {
    LinesByFamily lines;
    for (const IpFamily family : kBothFamilies) {
      lines[family] = BaseChainsOf({.family = family, .mode = mode});
    }
    return lines;
  }
  // As on a node on which no other kubelet than one with the gate on ever was.
  static LinesByFamily OfAFreshNode(IptablesMode mode) {
    const Netns netns = NewNetns();
    const InNetns inside(netns);
    AddThirdParty(mode);
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOn, {.family = family, .mode = mode});
    }
    return Stands(mode);
  }
  static Lines OfOthers(IptablesMode mode) {
    const Netns netns = NewNetns();
    const InNetns inside(netns);
    AddThirdParty(mode);
    return LinesOf({.mode = mode});
  }
  static std::string NftTables() { return Output({"nft", "list", "tables"}); }
};

// ---- forms and bits ----

struct Residue {
  const char* name;
  std::vector<KubeletForm> forms;
  std::vector<KubeletBits> bits = {{}};
};
const Residue kResidues[] = {
    {"Of1_17", {KubeletForm::k1_17}},
    {"Of1_19", {KubeletForm::k1_19}},
    {"Of1_24", {KubeletForm::k1_24}},
    {"Of1_27GateOff", {KubeletForm::k1_27GateOff}},
    {"OfAllInTurn",
     {KubeletForm::k1_17, KubeletForm::k1_19, KubeletForm::k1_24, KubeletForm::k1_27GateOff}},
    {"OfOtherBits", {KubeletForm::k1_24}, {{.masquerade = 20, .drop = 21}}},
    {"OfOtherBitsOf1_17", {KubeletForm::k1_17}, {{.masquerade = 20, .drop = 21}}},
    {"OfChangedBits", {KubeletForm::k1_24}, {{}, {.masquerade = 20, .drop = 21}, {31, 0}}},
};

class ResidueTest : public RetirePathsTest,
                    public ::testing::WithParamInterface<std::tuple<Residue, IptablesMode>> {};

TEST_P(ResidueTest, AllOfItGoesAndNothingElse) {
  const auto& [residue, mode] = GetParam();
  AddThirdParty(mode);
  for (const KubeletBits bits : residue.bits) {
    for (const KubeletForm form : residue.forms) {
      for (const IpFamily family : kBothFamilies) {
        Kubelet(form, {.family = family, .mode = mode}, bits);
      }
    }
  }
  const LinesByFamily base_chains = BaseChains(mode);
  const Retired retired = SyncAndRetire(mode);
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(Stands(mode), OfAFreshNode(mode)) << retired.result;
  EXPECT_THAT(retired.kept, IsEmpty());
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(BaseChains(mode)[family], IsSupersetOf(base_chains.at(family)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResidueTest,
                         ::testing::Combine(::testing::ValuesIn(kResidues),
                                            ::testing::ValuesIn(kBothModes)),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param).name,
                                               TestNameOf(std::get<1>(row.param)));
                         });

// ---- families, modes, commands ----

class RetireModesTest : public RetirePathsTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static IptablesMode Mode() { return GetParam(); }
};

// It may be somebody else's who manages it: another run, in the other iptables mode.
TEST_P(RetireModesTest, AFamilyThatIsNotAskedForIsLeftAsItIs) {
  AddThirdParty(Mode());
  LeaveResidue(Mode());
  LeaveResidue(OtherThan(Mode()));
  const Lines six = Stands(Mode())[IpFamily::kIpv6];
  const Lines other_six = Stands(OtherThan(Mode()))[IpFamily::kIpv6];
  const Retired retired = SyncAndRetire(Mode(), {"--ip-families=ipv4"});
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(Stands(Mode())[IpFamily::kIpv6], six);
  EXPECT_EQ(Stands(OtherThan(Mode()))[IpFamily::kIpv6], other_six);
  EXPECT_EQ(Stands(Mode())[IpFamily::kIpv4], OfAFreshNode(Mode())[IpFamily::kIpv4]);
  const Retired more = RunRetire(Mode(), {"--yes", "--ip-families=ipv4"});
  EXPECT_EQ(more.result.exit_code, kExitOk) << more.result;
  EXPECT_EQ(Stands(Mode())[IpFamily::kIpv6], six);
  EXPECT_EQ(Stands(OtherThan(Mode()))[IpFamily::kIpv6], other_six);
}

// A node whose families use different iptables modes, in one run for each.
TEST_P(RetireModesTest, ARunForEachFamilyInItsOwnModeLeavesTheOtherOnesAlone) {
  const IptablesMode other = OtherThan(Mode());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(SyncAndRetire(Mode(), {"--ip-families=ipv4"}).result.exit_code, kExitOk);
    EXPECT_EQ(SyncAndRetire(other, {"--ip-families=ipv6"}).result.exit_code, kExitOk);
  }
  EXPECT_THAT(Stands(Mode())[IpFamily::kIpv4],
              IsSupersetOf({"mangle: :KUBE-IPTABLES-HINT -", "filter: -A INPUT -j KUBE-FIREWALL"}));
  EXPECT_THAT(Stands(other)[IpFamily::kIpv6], IsSupersetOf({"mangle: :KUBE-IPTABLES-HINT -"}));
  EXPECT_EQ(SyncAndRetire(Mode(), {"--ip-families=ipv4"}).all_changes, 0);
}

// Where the managed mode marks and the other one acts on it.
TEST_P(RetireModesTest, WhatActsOnAMarkOfTheManagedModeStaysInTheOtherOne) {
  const IptablesMode other = OtherThan(Mode());
  LeaveResidue(other);
  const Iptables managed = {.mode = Mode()};
  for (const char* command : {"-N KUBE-MARK-DROP", "-A KUBE-MARK-DROP -j MARK --or-mark 0x8000",
                              "-A PREROUTING -p udp --dport 6000 -j KUBE-MARK-DROP"}) {
    Output({"sh", "-c", absl::StrCat("iptables-", NameOf(Mode()), " -t nat ", command)});
  }
  EXPECT_EQ(SyncAndRetire(Mode()).result.exit_code, kExitOk);
  const Lines stay = Stands(other)[IpFamily::kIpv4];
  EXPECT_THAT(stay, Contains(HasSubstr("dropping marked packets")));
  EXPECT_THAT(stay, Not(Contains(HasSubstr("MASQUERADE"))));
}

TEST_P(RetireModesTest, OfTheOtherModeEverythingGoesAndNoTableComesIntoBeing) {
  const IptablesMode other = OtherThan(Mode());
  AddThirdParty(other);
  LeaveResidue(other);
  SyncAndKeep(Mode());  // --stale-chains=keep
  const std::string nft = NftTables();
  const std::string legacy4 = IptablesLegacyTables(IpFamily::kIpv4);
  const std::string legacy6 = IptablesLegacyTables(IpFamily::kIpv6);
  const LinesByFamily managed = Stands(Mode());
  const LinesByFamily base_chains = BaseChains(other);

  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Stands(other)[family], OfOthers(other)) << retired.result;
  }
  EXPECT_EQ(BaseChains(other), base_chains);
  EXPECT_EQ(Stands(Mode()), managed);
  EXPECT_EQ(NftTables(), nft);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4), legacy4);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), legacy6);
  EXPECT_EQ(SyncAndRetire(Mode()).all_changes, 0);
}

TEST_P(RetireModesTest, OfTheOtherModeADaemonRetiresAtItsStart) {
  const IptablesMode other = OtherThan(Mode());
  LeaveResidue(other);
  AddThirdParty(other);
  StartOnly(RetireFlags(Mode()));
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Stands(other)[family], OfOthers(other)) << daemon().Output();
  }
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
}

TEST_P(RetireModesTest, WhatAKubeProxyOfTheOtherModeNeedsStays) {
  const IptablesMode other = OtherThan(Mode());
  LeaveResidue(other);
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult loaded = LoadKubeProxy("1.24", {.family = family, .mode = other});
    EXPECT_EQ(loaded.exit_code, 0) << loaded;
  }
  const LinesByFamily before = Stands(other);
  EXPECT_EQ(SyncAndRetire(Mode()).result.exit_code, kExitOk);
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Without(before.at(family), Stands(other)[family]),
              (Lines{"mangle: :KUBE-IPTABLES-HINT -", "filter: :KUBE-KUBELET-CANARY -",
                     "mangle: :KUBE-KUBELET-CANARY -", "nat: :KUBE-KUBELET-CANARY -"}));
  }
}

TEST_P(RetireModesTest, WithYesItIsDoneOnceCanariesIncludedAndThenThereIsNothing) {
  AddThirdParty(Mode());
  LeaveResidue(Mode());
  SyncAndKeep(Mode());
  const LinesByFamily base_chains = BaseChains(Mode());
  const Retired retired = RunRetire(Mode(), {"--yes"});
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  LinesByFamily expected = OfAFreshNode(Mode());
  for (auto& [family, lines] : expected) {
    for (const char* table : {"mangle", "nat", "filter"}) {
      EXPECT_EQ(lines.erase(absl::StrCat(table, ": :KUBE-KUBELET-CANARY -")), 1U);
    }
  }
  EXPECT_EQ(Stands(Mode()), expected);
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(BaseChains(Mode())[family], IsSupersetOf(base_chains.at(family)));
  }

  const auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const Retired again = RunRetire(Mode(), {"--yes"});
  EXPECT_EQ(again.result.exit_code, kExitOk) << again.result;
  EXPECT_EQ(again.all_changes, 0);
  const auto generations = (*listener)->Drain();
  ASSERT_THAT(generations, IsOk());
  EXPECT_THAT(*generations, IsEmpty());
  EXPECT_EQ(Stands(Mode()), expected);
}

// iptables-wrappers and CNI plugins choose their mode by it.
TEST_P(RetireModesTest, TheHintStaysAsLongAsAnythingElseOfItsModeDoes) {
  const std::string hint = "mangle: :KUBE-IPTABLES-HINT -";
  const std::vector<std::string> off = {"--yes", "--make-iptables-util-chains=false"};
  LeaveResidue(Mode());
  SyncAndKeep(Mode());
  const ProgramResult loaded = LoadKubeProxy("1.28", {.mode = Mode()});
  EXPECT_EQ(loaded.exit_code, 0) << loaded;
  const Retired kept = RunRetire(Mode(), off);
  EXPECT_EQ(kept.result.exit_code, kExitOk) << kept.result;
  EXPECT_EQ(kept.kept.at("ip mangle KUBE-IPTABLES-HINT"), std::set<std::string>{"hintReaders"});
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Stands(Mode())[family].count(hint), 1U) << "wrappers look at both families";
  }
  const std::string program = absl::StrCat("iptables-", NameOf(Mode()));
  for (const char* table : {"mangle", "nat", "filter"}) {
    Output({program, "-t", table, "-F"});
    Output({program, "-t", table, "-X"});
    Output({absl::StrCat("ip6tables-", NameOf(Mode())), "-t", table, "-F"});
  }
  SyncAndKeep(Mode());
  const Retired gone = RunRetire(Mode(), off);
  EXPECT_EQ(gone.result.exit_code, kExitOk) << gone.result;
  for (const IpFamily family : kBothFamilies) EXPECT_THAT(Stands(Mode())[family], IsEmpty());
}

TEST_P(RetireModesTest, AnAdministratorsPolicyOfABuiltInChainStays) {
  LeaveResidue(Mode());
  for (const IpFamily family : kBothFamilies) {
    const Iptables iptables = {.family = family, .mode = Mode()};
    for (const char* chain : {"INPUT", "FORWARD", "OUTPUT"}) {
      ASSERT_EQ(iptables.Run({"-P", chain, "DROP"}).exit_code, 0);
    }
  }
  EXPECT_EQ(SyncAndRetire(Mode(), {"--ip-families=ipv4"}).result.exit_code, kExitOk);
  EXPECT_EQ(RunRetire(Mode(), {"--yes", "--ip-families=ipv4"}).result.exit_code, kExitOk);
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(
        BaseChains(Mode())[family],
        IsSupersetOf({"filter: :INPUT DROP", "filter: :FORWARD DROP", "filter: :OUTPUT DROP"}));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RetireModesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
