// SPDX-License-Identifier: Apache-2.0
//
// Leftovers of kubelets of every form, with any bits, in a family or an iptables mode that is
// managed no longer; and the ways to have them removed: by policy, and by `retire`.
#include <tuple>

#include "tests/interop/retire_fixture.h"
#include "tests/support/generation_listener.h"

namespace kipt::testing {
namespace {

using LinesByFamily = std::map<IpFamily, Lines>;

IptablesMode OtherThan(IptablesMode mode) {
  return mode == IptablesMode::kNft ? IptablesMode::kLegacy : IptablesMode::kNft;
}

class RetirePathsTest : public RetireTest {
 protected:
  static LinesByFamily Current(IptablesMode mode) {
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
    return Current(mode);
  }
};

struct Residue {
  const char* name;
  std::vector<KubeletForm> forms;
  std::vector<KubeletBits> bits = {{}};
};
const Residue kResidues[] = {
    {"Of1_17", {KubeletForm::k1_17}},
    {"Of1_27GateOff", {KubeletForm::k1_27GateOff}},
    {"OfAllInTurn",
     {KubeletForm::k1_17, KubeletForm::k1_19, KubeletForm::k1_24, KubeletForm::k1_27GateOff}},
    {"OfChangedBits", {KubeletForm::k1_24}, {{}, {.masquerade = 20, .drop = 21}, {31, 0}}},
};

class ResidueTest : public RetirePathsTest,
                    public ::testing::WithParamInterface<std::tuple<Residue, IptablesMode>> {};

TEST_P(ResidueTest, IsRemovedAndNothingElse) {
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
  EXPECT_EQ(Current(mode), OfAFreshNode(mode)) << retired.result;
  EXPECT_THAT(retired.kept, IsEmpty());
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(BaseChains(mode)[family], IsSupersetOf(base_chains.at(family)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResidueTest,
                         ::testing::Combine(::testing::ValuesIn(kResidues),
                                            ::testing::ValuesIn(kBothModes)),
                         RowAndModeName<Residue>);

class RetireModesTest : public RetirePathsTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static IptablesMode Mode() { return GetParam(); }
};

TEST_P(RetireModesTest, RemovesAllOfTheOtherModeAndMakesNoTable) {
  const IptablesMode other = OtherThan(Mode());
  AddThirdParty(other);
  const LinesByFamily of_others = Current(other);
  LeaveResidue(other);
  SyncAndKeep(Mode());  // --stale-chains=keep
  const std::string nft = Output({"nft", "list", "tables"});
  const std::string legacy4 = IptablesLegacyTables(IpFamily::kIpv4);
  const std::string legacy6 = IptablesLegacyTables(IpFamily::kIpv6);
  const LinesByFamily managed = Current(Mode());
  const LinesByFamily base_chains = BaseChains(other);

  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(Current(other), of_others) << retired.result;
  EXPECT_EQ(BaseChains(other), base_chains);
  EXPECT_EQ(Current(Mode()), managed);
  EXPECT_EQ(Output({"nft", "list", "tables"}), nft);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4), legacy4);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), legacy6);
  EXPECT_EQ(SyncAndRetire(Mode()).all_changes, 0);
}

TEST_P(RetireModesTest, KeepsTheOthersMartianRuleWhereARuleOfThisModeMayAcceptMartians) {
  const Iptables managed = {.mode = Mode()};
  const auto firewalls = [] {
    return LinesOf({.mode = OtherThan(Mode())}).count("filter: :KUBE-FIREWALL -");
  };
  LeaveResidue(OtherThan(Mode()));
  SetSysctl("ipv4/conf/all/route_localnet", "1");
  SyncAndKeep(Mode());
  managed.Run({"-I", "INPUT", "!", "-i", "lo", "-j", "ACCEPT"});
  SyncAndRetire(Mode());
  RunRetire(Mode(), {"--yes"});
  EXPECT_EQ(firewalls(), 1U);
  StartOnly(RetireFlags(Mode()));
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  EXPECT_EQ(firewalls(), 1U);
  managed.Run({"-D", "INPUT", "1"});
  RunRetire(Mode(), {"--yes"});
  EXPECT_EQ(firewalls(), 0U);
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
  EXPECT_EQ(Current(Mode()), expected);
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(BaseChains(Mode())[family], IsSupersetOf(base_chains.at(family)));
  }

  auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const Retired again = RunRetire(Mode(), {"--yes"});
  EXPECT_EQ(again.result.exit_code, kExitOk) << again.result;
  EXPECT_EQ(again.all_changes, 0);
  EXPECT_THAT(listener->Drain(), IsOkAndHolds(netlink::RulesetChanges()));
  EXPECT_EQ(Current(Mode()), expected);
}

TEST_P(RetireModesTest, ADaemonCountsRemovalsAndReportsOnceWhatIsKept) {
  LeaveResidue(Mode());
  Load({.mode = Mode()}, "*nat\n:THIRD - [0:0]\n-A THIRD -p udp -j KUBE-MARK-MASQ\nCOMMIT\n");
  StartOnly(RetireFlags(Mode()));
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  const std::string stale = absl::StrCat("Stale in iptables ", NameOf(Mode()));
  EXPECT_TRUE(daemon().Prints(stale + ", and kept: foreignJump (1): ip nat KUBE-MARK-MASQ"))
      << daemon().Output();
  const std::string retired = "kube_iptables_agent_retired_total";
  // The chain and its rule.
  EXPECT_EQ(Metric(retired, "{chain=\"KUBE-MARK-DROP\",family=\"ip\","), 2);
  EXPECT_EQ(Metric(retired, "{chain=\"KUBE-MARK-MASQ\",family=\"ip\","), 0);
  EXPECT_EQ(Metric(retired, "{chain=\"INPUT\",family=\"ip6\","), 1) << "the jump";
  EXPECT_EQ(
      Metric("kube_iptables_agent_stale_claims", "{chain=\"KUBE-MARK-MASQ\",claim=\"foreignJump\""),
      1);
  EXPECT_EQ(Metric("kube_iptables_agent_drift_detected_total"), 0) << "nothing was damaged";
  EXPECT_TRUE(IsReady()) << "what is kept is no fault";
  EXPECT_FALSE(daemon().Prints(stale, 2, absl::Seconds(1))) << "reported once";
}

INSTANTIATE_TEST_SUITE_P(Modes, RetireModesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
