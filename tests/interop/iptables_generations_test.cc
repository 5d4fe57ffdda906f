// SPDX-License-Identifier: Apache-2.0
//
// One kernel, several iptables: the node's own, and those that containers bring along. Debian 11
// has 1.8.7, Debian 12 (this machine) 1.8.9, Debian 13 1.8.11.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct GenerationRow {
  const char* name;
  const char* release;
  const char* version;
};
constexpr GenerationRow kGenerations[] = {
    {"Iptables1_8_7", "bullseye", "v1.8.7 (nf_tables)"},
    {"Iptables1_8_11", "trixie", "v1.8.11 (nf_tables)"},
};

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
  void TheyWrite(KubeletBits bits = {}) const {
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOff, Theirs(family), bits);
      AddIpv6Jumps(Theirs(family));
    }
  }
};

TEST_P(IptablesGenerationsTest, IsTheOneTheTestSaysItIs) {
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

TEST_P(IptablesGenerationsTest, FindsEachOfKubeletsRulesAfterOurs) {
  Sync(Legacy());
  for (const IpFamily family : kBothFamilies) {
    for (const KubeletStep& step : KubeletSequence(KubeletForm::k1_27GateOff, family)) {
      if (step.rule.empty()) continue;
      const ProgramResult result = Theirs(family).Run(CheckArguments(step));
      EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(step.rule) << result;
    }
    EXPECT_EQ(Kubelet(KubeletForm::k1_27GateOff, Theirs(family)).rules_added, 0);
    EXPECT_THAT(SavedRules::Of({family}).DoubledRules(), IsEmpty());
  }
}

TEST_P(IptablesGenerationsTest, ReadsOurCleanupModeAsItsOwn) {
  Sync({.ownership_cleanup = true});
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Kubelet(KubeletForm::k1_27GateOn, Theirs(family)).rules_added, 0);
  }
}

// iptables-legacy of the other generation, by -S: its save would want a /proc in the chroot.
TEST_P(IptablesGenerationsTest, ReadsOurRulesInLegacyTablesAsThisMachinesDoes) {
  AgentSettings settings = Legacy();
  settings.iptables = IptablesMode::kLegacy;
  Sync(settings);
  for (const IpFamily family : kBothFamilies) {
    Iptables theirs = Theirs(family);
    theirs.mode = IptablesMode::kLegacy;
    Iptables own{family};
    own.mode = IptablesMode::kLegacy;
    for (const char* table : kIptablesTables) {
      const ProgramResult read = theirs.Run({"-t", table, "-S"});
      EXPECT_EQ(read.exit_code, 0) << read;
      EXPECT_THAT(read.out, HasSubstr("-N KUBE-"));
      EXPECT_EQ(read.out, own.Run({"-t", table, "-S"}).out);
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

TEST_P(IptablesGenerationsTest, WroteAnOldKubeletsRulesAndWeDoubleNothing) {
  for (const KubeletForm form : {KubeletForm::k1_17, KubeletForm::k1_24}) {
    const Netns netns = NewNetns();
    const Netns fresh = NewNetns();
    for (const IpFamily family : kBothFamilies) {
      SavedRules expected;
      {
        const InNetns in(fresh);
        Sync(Legacy());
        expected = SavedRules::Of({family});
      }
      const InNetns in(netns);
      Kubelet(form, Theirs(family));
      Sync(Legacy());
      EXPECT_EQ(SavedRules::Of({family}), expected);
      ExpectNothingPlanned(Legacy());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, IptablesGenerationsTest, ::testing::ValuesIn(kGenerations),
                         [](const auto& row) { return std::string(row.param.name); });

class OldReaderTest : public AgentTest {
 protected:
  static constexpr char kDropAll[] =
      "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" "
      "-j DROP";
  static constexpr char kReturnAll[] = "-A KUBE-POSTROUTING -j RETURN";
  const Iptables old_{IpFamily::kIpv4, ChrootDir("bullseye")};
  const Iptables own_{IpFamily::kIpv4};
};

// Why the agent writes the old form of the mark match: 1.8.9 and later write a form that 1.8.7
// reads as no match at all, without a word.
TEST_F(OldReaderTest, RulesThat189WroteAreReadWrongBy187) {
  Kubelet(KubeletForm::k1_27GateOff, own_);
  const SavedRules read = SavedRules::Parse(old_.Save().out);
  EXPECT_THAT(read.Rules("filter", "KUBE-FIREWALL"), Contains(kDropAll));
  EXPECT_THAT(read.Rules("nat", "KUBE-POSTROUTING"), Contains(kReturnAll));
}

TEST_F(OldReaderTest, RulesThatWeWroteAreNot) {
  Sync(Legacy());
  const SavedRules read = SavedRules::Of(old_);
  EXPECT_THAT(read.Rules("filter", "KUBE-FIREWALL"), Not(Contains(kDropAll)));
  EXPECT_THAT(read.Rules("nat", "KUBE-POSTROUTING"), Not(Contains(kReturnAll)));
}

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

}  // namespace
}  // namespace kipt::testing
