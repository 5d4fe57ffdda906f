// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/command_line.h"
#include "agent/config/load_config.h"
#include "featuregates/known_features.h"
#include "tests/agent/config/config_files.h"
#include "tests/support/matchers.h"

namespace kipt::agent::config_test {
namespace {

using netlink::Family;

// ---- modes, bits and warnings, by release, gate and source ----

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
  Mode mode = Mode::kCleanup;
  MarkBits bits = {14, 15};
  // "PATH" stands for the file's path.
  std::vector<std::string> warnings = {};
};

TEST(ConfigTest, ChoosesModeBitsAndWarnings) {
  const GoodCase rows[] = {
      // Releases.
      {"NothingGiven"},
      {"In124ThereIsOnlyLegacyMode", At("1.24"), {}, Mode::kLegacy},
      {"In124BitsHaveEffectWithoutAWarning", WithBits(At("1.24"), 3, 4), {}, Mode::kLegacy, {3, 4}},
      {"In125TheGateIsOffByDefault", WithBits(At("1.25"), 0, 31), {}, Mode::kLegacy, {0, 31}},
      {"In126TheGateCanBeTurnedOn", At("1.26", {kOn})},
      {"In125AllAlphaTurnsTheGateOn", At("1.25", {"AllAlpha=true"})},
      {"In126WithTheGateOnBitsWarn",
       WithBits(At("1.26", {kOn}), 14, 15),
       "",
       Mode::kCleanup,
       {14, 15},
       {kDeprecatedMasquerade, kDeprecatedDrop}},
      {"In127TheGateIsOnByDefaultAndBitsWarn",
       WithBits(At("1.27"), 3, 4),
       "",
       Mode::kCleanup,
       {3, 4},
       {kDeprecatedMasquerade, kDeprecatedDrop}},
      {"In127TheGateCanBeTurnedOff",
       WithBits(At("1.27", {kOff}), 31, 5),
       {},
       Mode::kLegacy,
       {31, 5}},
      {"TheLaterGateFlagWins", At("1.27", {kOff, kOn})},
      {"In128TheLockedGateMayBeNamed", At("1.28", {kOn}), "", Mode::kCleanup, {14, 15}, {kGaGate}},
      {"In129OnlyTheBitThatIsGivenWarns",
       {.iptables_drop_bit = 20, .emulated_version = "1.29"},
       "",
       Mode::kCleanup,
       {14, 20},
       {kDeprecatedDrop}},
      {"In130EqualBitsHaveNoEffect",
       WithBits(At("1.30"), 7, 7),
       "",
       Mode::kCleanup,
       {14, 15},
       {kDeprecatedMasquerade, kDeprecatedDrop}},
      {"ANewerReleaseBehavesAsTheNewestKnown",
       At("1.99"),
       "",
       Mode::kCleanup,
       {14, 15},
       {"--emulated-version 1.99 is newer than the newest release known here; behaving as 1.37"}},
      {"OurOwnFlagTurnsTheAgentOff",
       {.make_iptables_util_chains = false, .emulated_version = "1.24"},
       {},
       Mode::kOff},
      {"SwitchedOffEqualBitsAreNoError",
       WithBits({.make_iptables_util_chains = false, .emulated_version = "1.24"}, 3, 3),
       {},
       Mode::kOff},
      // Files.
      {"OurOwnKindSetsEverything",
       {},
       Agent("emulatedVersion: '1.26'\niptablesMasqueradeBit: 1\niptablesDropBit: 2\n"),
       Mode::kLegacy,
       {1, 2}},
      {"FlagsWinOverTheFile",
       WithBits(At("1.27", {kOff}), 5, 6),
       Agent("emulatedVersion: '1.30'\niptablesMasqueradeBit: 1\niptablesDropBit: 2\n"),
       Mode::kLegacy,
       {5, 6}},
      {"AFlagCanMendAWrongValueOfTheFile",
       {.feature_gates = {kOff}, .iptables_drop_bit = 6},
       Agent("iptablesDropBit: 32\n"),
       Mode::kLegacy,
       {14, 6}},
      {"TheFlagsGateWinsOverTheFilesGateByGate", At("1.25", {"AllAlpha=true"}),
       Agent("featureGates: {IPTablesOwnershipCleanup: false}\n"), Mode::kLegacy},
      {"OurOwnKindCanSwitchTheAgentOff", {}, Agent("makeIPTablesUtilChains: false\n"), Mode::kOff},
      {"TheFlagSwitchesItOnAgain",
       {.make_iptables_util_chains = true},
       Agent("makeIPTablesUtilChains: false\n")},
      {"AKubeletConfigurationCannotSwitchTheAgentOff",
       {},
       Kubelet("makeIPTablesUtilChains: false\n")},
      {"AKubeletConfigurationCanTurnTheGateOff",
       {},
       Kubelet("featureGates: {IPTablesOwnershipCleanup: false}\niptablesDropBit: 9\n"),
       Mode::kLegacy,
       {14, 9}},
      // kubelet 1.30 refuses such a file; whoever emulates it must hear that the gate does
      // nothing.
      {"In130AGateOfAKubeletConfigurationThatWouldHaveBeenOffWarns",
       At("1.30"),
       Kubelet("featureGates: {IPTablesOwnershipCleanup: false, Other: true}\n"),
       Mode::kCleanup,
       {14, 15},
       {"PATH: featureGates.IPTablesOwnershipCleanup false has no effect: Kubernetes 1.30 has no "
        "such gate, and the agent is in cleanup mode; remove it, or give an --emulated-version "
        "from 1.25 to 1.27"}},
      {"In130AGateOfAKubeletConfigurationThatSaysWhatIsSoIsSilent", At("1.31"),
       Kubelet("featureGates: {IPTablesOwnershipCleanup: true}\n")},
      {"In124AGateOfAKubeletConfigurationThatWouldHaveBeenOnWarns",
       At("1.24"),
       Kubelet("featureGates: {IPTablesOwnershipCleanup: true}\n"),
       Mode::kLegacy,
       {14, 15},
       {"PATH: featureGates.IPTablesOwnershipCleanup true has no effect: Kubernetes 1.24 has no "
        "such gate, and the agent is in legacy mode; remove it, or give an --emulated-version from "
        "1.25 to 1.27"}},
      {"AllBetaOfAKubeletConfigurationReachesKubeletsGate",
       {},
       Kubelet("featureGates: {AllBeta: false}\n"),
       Mode::kLegacy},
      {"IgnoredFieldsWithTheirDefaultsAreSilent", At("1.28"),
       Kubelet("iptablesMasqueradeBit: 14\niptablesDropBit: 15\n")},
      {"IgnoredFieldsWithOtherValuesWarn",
       At("1.28"),
       Kubelet("iptablesMasqueradeBit: 14\niptablesDropBit: 16\n"),
       Mode::kCleanup,
       {14, 16},
       {"PATH:4: iptablesDropBit 16 has no effect where IPTablesOwnershipCleanup is on; remove the "
        "field"}},
      {"In131FieldsAreStillAcceptedAndNotLookedAt",
       At("1.31"),
       Kubelet("iptablesMasqueradeBit: 99\n"),
       Mode::kCleanup,
       {14, 15},
       {"PATH:3: iptablesMasqueradeBit 99 has no effect where IPTablesOwnershipCleanup is on; "
        "remove the field"}},
      {"WarningsStandInTheOrderOfReleaseGatesFlagsFile",
       {.feature_gates = {kOn}, .iptables_drop_bit = 3, .emulated_version = "1.28"},
       Kubelet("iptablesMasqueradeBit: 20\n"),
       Mode::kCleanup,
       {20, 3},
       {kGaGate, kDeprecatedDrop,
        "PATH:3: iptablesMasqueradeBit 20 has no effect where IPTablesOwnershipCleanup is on; "
        "remove the field"}},
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

// ---- families ----

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

TEST(ConfigFamiliesTest, AListIsTakenAsItIsAndSorted) {
  const ConfigFiles node;
  const auto both = node.Load(Flags{.ip_families = "ipv6,ipv4"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_FALSE(both->families_by_kernel);
  EXPECT_THAT(both->families, ElementsAre(Family::kIPv4, Family::kIPv6));
  EXPECT_THAT(node.Load(Flags{.ip_families = "ipv6"})->families, ElementsAre(Family::kIPv6));
  EXPECT_THAT(node.Load(Flags{.ip_families = "ipv4"})->families, ElementsAre(Family::kIPv4));
}

TEST(ConfigFamiliesTest, TheFlagWinsOverTheFile) {
  const ConfigFiles node;
  const auto config = node.Load(Flags{.ip_families = "auto"}, Agent("ipFamilies: ipv4\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->families, ElementsAre(Family::kIPv4, Family::kIPv6));
}

// ---- files ----

TEST(ConfigSourcesTest, TheDefaultFileMayBeMissing) {
  const ConfigFiles node;
  const auto config = node.Load(Flags{});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->config_file, IsEmpty());
}

TEST(ConfigSourcesTest, TheDefaultFileIsReadWhereItIs) {
  const ConfigFiles node;
  const std::string path = node.Write("config.yaml", Agent("emulatedVersion: '1.24'\n"));
  const auto config = node.Load(Flags{});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->config_file, path);
  EXPECT_EQ(config->emulated_version, (featuregates::Version{1, 24}));
}

TEST(ConfigSourcesTest, AnExplicitFileReplacesTheDefaultOne) {
  const ConfigFiles node;
  node.Write("config.yaml", "nonsense: [");
  const auto config = node.Load(Flags{}, Agent("emulatedVersion: '1.25'\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->emulated_version, (featuregates::Version{1, 25}));
}

TEST(ConfigSourcesTest, ARealKubeletConfigurationIsAcceptedWithTenGatesThatAreNoneOfOurs) {
  const ConfigFiles node;
  const std::filesystem::path path =
      std::filesystem::path(KIPT_TESTDATA_DIR) / "kubelet-config.yaml";
  const auto config = node.Load(Flags{.config = path.string()});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->mode, Mode::kLegacy);
  EXPECT_EQ(config->bits, (MarkBits{.masquerade = 12, .drop = 13}));
  EXPECT_EQ(config->gates.ignored().size(), 10u);
  EXPECT_EQ(config->gates.ignored().front(), "CPUManagerPolicyAlphaOptions");
  EXPECT_THAT(config->warnings, IsEmpty());
}

// ---- the iptables mode ----

TEST(IptablesModeTest, IsAutoWhereNobodySaysAnything) {
  const ConfigFiles node;
  EXPECT_EQ(node.Load(Flags{})->iptables_mode, std::nullopt);
  EXPECT_EQ(node.Load(Flags{.iptables_mode = "auto"}, Agent("iptablesMode: nft\n"))->iptables_mode,
            std::nullopt);
}

TEST(IptablesModeTest, TheFlagWinsOverTheFile) {
  const ConfigFiles node;
  EXPECT_EQ(node.Load(Flags{}, Agent("iptablesMode: legacy\n"))->iptables_mode,
            IptablesMode::kLegacy);
  EXPECT_EQ(
      node.Load(Flags{.iptables_mode = "nft"}, Agent("iptablesMode: legacy\n"))->iptables_mode,
      IptablesMode::kNft);
  EXPECT_EQ(node.Load(Flags{}, Kubelet("iptablesMode: legacy\n"))->iptables_mode, std::nullopt);
}

TEST(HostRootTest, IsADirectory) {
  const ConfigFiles node;
  EXPECT_EQ(node.Load(Flags{.host_root = "/"})->host_root, "/");
  EXPECT_EQ(node.Load(Flags{})->host_root, std::nullopt);
}

// ---- as a value ----

TEST(ConfigTextTest, PrintsTheEffectiveConfiguration) {
  const ConfigFiles node;
  const auto config = node.Load(Flags{.feature_gates = {kOff}, .ip_families = "ipv4"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ToString(*config),
            "emulatedVersion: 1.27\n"
            "featureGates: AllAlpha=false,AllBeta=false,ConnLabelMarking=false,"
            "IPTablesOwnershipCleanup=false\n"
            "makeIPTablesUtilChains: true\n"
            "mode: legacy\n"
            "iptablesMasqueradeBit: 14\n"
            "iptablesDropBit: 15\n"
            "iptablesMasqueradeLabel: 114\n"
            "iptablesDropLabel: 115\n"
            "ipFamilies: ipv4\n"
            "iptablesMode: auto\n"
            "hostRoot: (own)\n"
            "iptablesSyncPeriod: 1m0s\n"
            "watch: events\n"
            "observe: false\n"
            "healthzBindAddress: 127.0.0.1:10270\n"
            "metricsBindAddress: 127.0.0.1:10271\n"
            "staleChains: keep\n"
            "hintPolicy: usable\n"
            "cniConfDir: (known)\n"
            "incidentsFile: /var/lib/kube-iptables-agent/incidents\n"
            "foreignRules: auto\n"
            "expectedRules: (none)\n"
            "auditPeriod: 10m0s\n"
            "config: (none)\n");
}

TEST(ConfigTextTest, SaysWhatAutoFound) {
  const ConfigFiles node;
  const auto config = node.Load(Flags{}, Agent(""));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(ToString(*config), AllOf(StartsWith("emulatedVersion: 1.27\n"),
                                       HasSubstr("ipFamilies: auto (ipv4,ipv6)\n"),
                                       HasSubstr("config: " + config->config_file + "\n")));
}

TEST(ConfigTextTest, EqualFlagsGiveEqualConfigurations) {
  const ConfigFiles node;
  EXPECT_EQ(*node.Load(At("1.26")), *node.Load(At("1.26")));
  EXPECT_FALSE(*node.Load(At("1.26")) == *node.Load(At("1.25")));
}

}  // namespace
}  // namespace kipt::agent::config_test
