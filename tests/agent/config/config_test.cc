// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/agent/config/config_files.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::agent::config_test {
namespace {

using netlink::Family;

constexpr char kDeprecatedMasquerade[] =
    "Flag --iptables-masquerade-bit has been deprecated, This flag has no effect and will be "
    "removed in a future version.";
constexpr char kDeprecatedDrop[] =
    "Flag --iptables-drop-bit has been deprecated, This flag has no effect and will be removed in "
    "a future version.";
constexpr char kGaGate[] =
    "Setting GA feature gate IPTablesOwnershipCleanup=true. It will be removed in a future "
    "release.";

struct GoodCase {
  std::string name;
  Flags flags = {};
  std::string file = {};  // what --config names; none where empty
  // "PATH" is replaced by the file's path.
  std::vector<std::string> warnings = {};
  Mode mode = Mode::kCleanup;
  MarkBits bits = {14, 15};
};

TEST(ConfigTest, ChoosesModeBitsAndWarnings) {
  const std::string gate_off = "featureGates: {IPTablesOwnershipCleanup: false, Other: true}\n";
  const std::string gate_on = "featureGates: {IPTablesOwnershipCleanup: true}\n";
  const std::string no_such_gate = "; remove it, or give an --emulated-version from 1.25 to 1.27";
  const std::string no_effect =
      " has no effect where IPTablesOwnershipCleanup is on; remove the field";
  const GoodCase rows[] = {
      // Releases.
      {"NothingGiven"},
      {"In124ThereIsOnlyLegacyMode", At("1.24"), "", List(), Mode::kLegacy},
      {"In127TheGateIsOnByDefaultAndBitsWarn", WithBits(At("1.27"), 3, 4), "",
       List(kDeprecatedMasquerade, kDeprecatedDrop), Mode::kCleanup, MarkBits{3, 4}},
      {"In128TheLockedGateMayBeNamed", At("1.28", {kOn}), "", List(kGaGate)},
      {"In129OnlyTheBitThatIsGivenWarns",
       Flags{.iptables_drop_bit = 20, .emulated_version = "1.29"}, "", List(kDeprecatedDrop),
       Mode::kCleanup, MarkBits{14, 20}},
      {"In130EqualBitsHaveNoEffect", WithBits(At("1.30"), 7, 7), "",
       List(kDeprecatedMasquerade, kDeprecatedDrop)},
      {"ANewerReleaseBehavesAsTheNewestKnown", At("1.99"), "",
       List("--emulated-version 1.99 is newer than the newest release known here; behaving as "
            "1.37")},
      {"SwitchedOffEqualBitsAreNoError",
       WithBits({.make_iptables_util_chains = false, .emulated_version = "1.24"}, 3, 3), "", List(),
       Mode::kOff},
      // Files.
      {"OurOwnKindSetsEverything", Flags(),
       Agent("emulatedVersion: '1.26'\niptablesMasqueradeBit: 1\niptablesDropBit: 2\n"), List(),
       Mode::kLegacy, MarkBits{1, 2}},
      {"OurOwnKindSetsAGate", Flags(), Agent(gate_on + "emulatedVersion: '1.26'\n")},
      {"FlagsWinOverTheFile", WithBits(At("1.27", {kOff}), 5, 6),
       Agent("emulatedVersion: '1.30'\niptablesMasqueradeBit: 1\niptablesDropBit: 2\n"), List(),
       Mode::kLegacy, MarkBits{5, 6}},
      {"AFlagCanReplaceAWrongValueOfTheFile",
       Flags{.feature_gates = {kOff}, .iptables_drop_bit = 6}, Agent("iptablesDropBit: 32\n"),
       List(), Mode::kLegacy, MarkBits{14, 6}},
      {"OurOwnKindCanSwitchTheAgentOff", Flags(), Agent("makeIPTablesUtilChains: false\n"), List(),
       Mode::kOff},
      {"AKubeletConfigurationCannotSwitchTheAgentOff", Flags(),
       Kubelet("makeIPTablesUtilChains: false\n")},
      // kubelet 1.30 refuses such a file; an agent that emulates it must report that the gate does
      // nothing.
      {"In130AGateOfAKubeletConfigurationThatWouldHaveBeenOffWarns", At("1.30"), Kubelet(gate_off),
       List("PATH: featureGates.IPTablesOwnershipCleanup false has no effect: Kubernetes 1.30 has "
            "no such gate, and the agent is in cleanup mode" +
            no_such_gate)},
      {"In130AGateOfAKubeletConfigurationWithItsFixedValueIsSilent", At("1.31"), Kubelet(gate_on)},
      {"In124AGateOfAKubeletConfigurationThatWouldHaveBeenOnWarns", At("1.24"), Kubelet(gate_on),
       List("PATH: featureGates.IPTablesOwnershipCleanup true has no effect: Kubernetes 1.24 has "
            "no such gate, and the agent is in legacy mode" +
            no_such_gate),
       Mode::kLegacy},
      {"IgnoredFieldsWithOtherValuesWarn", At("1.28"),
       Kubelet("iptablesMasqueradeBit: 14\niptablesDropBit: 16\n"),
       List("PATH:4: iptablesDropBit 16" + no_effect), Mode::kCleanup, MarkBits{14, 16}},
      {"In131FieldsAreStillAcceptedAndNotRead", At("1.31"), Kubelet("iptablesMasqueradeBit: 99\n"),
       List("PATH:3: iptablesMasqueradeBit 99" + no_effect)},
      {"WarningsAreInTheOrderOfReleaseGatesFlagsFile",
       Flags{.feature_gates = {kOn}, .iptables_drop_bit = 3, .emulated_version = "1.28"},
       Kubelet("iptablesMasqueradeBit: 20\n"),
       List(kGaGate, kDeprecatedDrop, "PATH:3: iptablesMasqueradeBit 20" + no_effect),
       Mode::kCleanup, MarkBits{20, 3}},
  };
  for (const GoodCase& row : rows) {
    SCOPED_TRACE(row.name);
    const ConfigFiles node;
    const auto config = node.Load(row.flags, row.file);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(ModeName(config->mode), ModeName(row.mode));
    EXPECT_EQ(config->bits.masquerade, row.bits.masquerade);
    EXPECT_EQ(config->bits.drop, row.bits.drop);
    std::vector<std::string> warnings = row.warnings;
    for (std::string& warning : warnings) {
      if (warning.rfind("PATH", 0) == 0) warning.replace(0, 4, node.Path("f.yaml"));
    }
    EXPECT_EQ(config->warnings, warnings);
  }
}

TEST(ConfigFamiliesTest, AutoTakesIPv6WhereTheNamespaceHasIt) {
  const ConfigFiles node;
  const auto with = node.Load(Flags{});
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_TRUE(with->families_by_kernel);
  EXPECT_THAT(with->families, ElementsAre(Family::kIPv4, Family::kIPv6));
  node.SetIPv6(false);
  const auto without = node.Load(Flags{});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->families, ElementsAre(Family::kIPv4));
}

TEST(ConfigFamiliesTest, AListReplacesDetectionAndIsSorted) {
  const ConfigFiles node;
  const auto both = node.Load(Flags{.ip_families = "ipv6,ipv4"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_FALSE(both->families_by_kernel);
  EXPECT_THAT(both->families, ElementsAre(Family::kIPv4, Family::kIPv6));
  EXPECT_THAT(node.Load(Flags{.ip_families = "ipv6"})->families, ElementsAre(Family::kIPv6));
}

TEST(ConfigSourcesTest, TheDefaultFileIsReadWhereItIsAndAnExplicitOneReplacesIt) {
  const ConfigFiles node;
  const std::string path = node.Write("config.yaml", Agent("emulatedVersion: '1.24'\n"));
  const auto config = node.Load(Flags{});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->config_file, path);
  EXPECT_EQ(config->emulated_version, (featuregates::Version{1, 24}));
  node.Write("config.yaml", "nonsense: [");
  EXPECT_TRUE(node.Load(Flags{}, Agent("emulatedVersion: '1.25'\n")).ok());
}

TEST(ConfigSourcesTest, ARealKubeletConfigurationIsAcceptedWithTenGatesThatAreNoneOfOurs) {
  const ConfigFiles node;
  const auto config =
      node.Load(Flags{.config = KIPT_TESTDATA_DIR "/../../fuzz/seeds/config_file/kubelet.yaml"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->mode, Mode::kLegacy);
  EXPECT_EQ(config->bits, (MarkBits{.masquerade = 12, .drop = 13}));
  EXPECT_EQ(config->gates.ignored().size(), 10u);
  EXPECT_EQ(config->gates.ignored().front(), "CPUManagerPolicyAlphaOptions");
  EXPECT_THAT(config->warnings, IsEmpty());
}

struct BadCase {
  std::string name;
  Flags flags;
  std::vector<std::string> parts;  // of the message, in order
  std::string file = {};
};

TEST(RefusedConfigTest, NamesTheMistakeAndItsFix) {
  const BadCase rows[] = {
      // Bits.
      {"Bit32", Flags{.iptables_drop_bit = 32},
       List("invalid configuration: iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and "
            "31, inclusive",
            "from the flag --iptables-drop-bit")},
      {"Bit32InAFile", Flags(),
       List("iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive",
            "f.yaml:3"),
       Kubelet("iptablesDropBit: 32\n")},
      {"EqualBitsInLegacyMode", WithBits(At("1.27", {kOff}), 9, 9),
       List("iptables-masquerade-bit and iptables-drop-bit must be different",
            "9 (from the flag --iptables-masquerade-bit)", "9 (from the flag", "Choose another")},
      {"ABitThatEqualsTheOthersDefault", Flags{.iptables_drop_bit = 14, .emulated_version = "1.24"},
       List("iptables-masquerade-bit and iptables-drop-bit must be different", "14 (the default)",
            "14 (from the flag --iptables-drop-bit)")},
      {"ABitFlagIn131", Flags{.iptables_masquerade_bit = 14, .emulated_version = "1.31"},
       List("unknown flag: --iptables-masquerade-bit", "Kubernetes 1.31 removed it")},
      {"ABitFlagWhereTheFileChooses134", Flags{.iptables_drop_bit = 15},
       List("unknown flag: --iptables-drop-bit", "Kubernetes 1.34 is emulated",
            "--emulated-version"),
       Agent("emulatedVersion: v1.34\n")},
      {"AnUnknownGateInOurOwnKind", Flags(),
       List("f.yaml: ", "unrecognized feature gate: NoSuchGate"),
       Agent("featureGates: {NoSuchGate: true}\n")},
      {"ALockedGate", At("1.28", {kOff}),
       List("cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to true",
            "(locked); IPTablesOwnershipCleanup needs an --emulated-version from 1.25 to 1.27")},
      {"OneAddressForBoth", Flags{.metrics_bind_address = "127.0.0.1:10270"},
       List("--metrics-bind-address: \"127.0.0.1:10270\" is the health address, too")},
      {"AnUnknownIptablesModeInAFile", Flags(),
       List("f.yaml:3: iptablesMode: invalid value \"none\"; accepted are auto, nft, legacy"),
       Agent("iptablesMode: none\n")},
      {"AHostRootThatIsNotThere", Flags{.host_root = "/no/such/directory"},
       List("--host-root: \"/no/such/directory\": No such file or directory")},
      {"AHostRootThatIsAFile", Flags{.host_root = "/proc/version"},
       List("--host-root: ", "Not a directory")},
      {"AReleaseThatIsTooOld", At("1.23"), List("cannot emulate 1.23", "1.24 to 1.37")},
      {"AnOldReleaseInAFile", Flags(),
       List("f.yaml:3: emulatedVersion: cannot emulate 1.23", "1.24 to 1.37"),
       Agent("emulatedVersion: '1.23'\n")},
      {"AnExplicitIPv6WithoutIPv6", Flags{.ip_families = "ipv4,ipv6"},
       List("--ip-families: ipv6 is requested, but this network namespace has no IPv6",
            "enable IPv6", "auto")},
      {"AnExplicitIPv6InAFile", Flags(),
       List("f.yaml:3: ipFamilies: ipv6 is requested", "enable IPv6"), Agent("ipFamilies: ipv6\n")},
      {"APeriodThatIsTooLong",
       Flags{.iptables_sync_period = absl::Hours(24) + absl::Nanoseconds(1)},
       List("--iptables-sync-period: 24h0m0.000000001s is not between 1s and 24h")},
      {"APeriodInAFileThatIsTooShort", Flags(),
       List("f.yaml:3: iptablesSyncPeriod: -1m0s is not between 1s and 24h"),
       Agent("iptablesSyncPeriod: -1m\n")},
      {"AnAuditPeriodThatIsTooLong", Flags(),
       List("f.yaml:3: auditPeriod: 25h0m0s is not between 1s and 24h, or 0s"),
       Agent("auditPeriod: 25h\n")},
      {"AnAddressThatIsAName", Flags{.healthz_bind_address = "localhost:10270"},
       List("--healthz-bind-address: invalid value \"localhost:10270\"; it must be an IPv4",
            "or empty for none")},
      {"ARelativeDirectory", Flags{.cni_conf_dir = "/a,b"},
       List("--cni-conf-dir: invalid value \"b\"; give absolute paths")},
      {"Label128", Flags{.iptables_drop_label = 128},
       List("invalid configuration: iptablesDropLabel (--iptables-drop-label) 128 must be between "
            "0 and 127, inclusive; found 128 (from the flag --iptables-drop-label)")},
      {"ALabelBelowTheFirstInAFile", Flags(),
       List("iptablesMasqueradeLabel (--iptables-masquerade-label) -1 must be between 0 and 127"),
       Agent("iptablesMasqueradeLabel: -1\n")},
      {"EqualLabels", Flags{.feature_gates = {"ConnLabelMarking=true"}, .iptables_drop_label = 114},
       List("iptables-masquerade-label and iptables-drop-label must be different; found 114 (the "
            "default) and 114 (from the flag --iptables-drop-label)")},
      {"AFlagThatOverridesTheFile", At("1.23"), List("--emulated-version: cannot emulate 1.23"),
       Agent("emulatedVersion: '1.26'\n")},
      {"AFileThatIsWrong", Flags(), List("f.yaml:3: unknown field"), Agent("unknown: 1\n")},
  };
  for (const BadCase& row : rows) {
    SCOPED_TRACE(row.name);
    const ConfigFiles node;
    node.SetIPv6(false);
    const auto config = node.Load(row.flags, row.file);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    std::string rest(config.status().message());
    for (const std::string& part : row.parts) {
      const size_t place = rest.find(part);
      ASSERT_NE(place, std::string::npos) << part << "\nis not in\n" << config.status();
      rest = rest.substr(place + part.size());
    }
  }
}

}  // namespace
}  // namespace kipt::agent::config_test
