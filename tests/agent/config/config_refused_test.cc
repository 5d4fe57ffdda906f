// SPDX-License-Identifier: Apache-2.0
//
// Every wrong flag and file that LoadConfig refuses, and the words it refuses it with.
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/config/config.h"
#include "gtest/gtest.h"
#include "tests/agent/config/config_files.h"

namespace kipt::agent::config_refused_test {
namespace {

constexpr auto RowName = [](const auto& row) { return row.param.name; };

struct BadCase {
  std::string name;
  Flags flags;
  std::string file;
  std::vector<std::string> parts;  // of the message, in order
};
void PrintTo(const BadCase& row, std::ostream* out) { *out << row.name; }

class RefusedConfigTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(RefusedConfigTest, SaysWhatIsWrongAndHowToMendIt) {
  const ConfigFiles node;
  node.SetIPv6(false);
  const auto config = node.Load(GetParam().flags, GetParam().file);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  std::string rest(config.status().message());
  for (const std::string& part : GetParam().parts) {
    const size_t place = rest.find(part);
    ASSERT_NE(place, std::string::npos) << part << "\nis not in\n" << config.status();
    rest = rest.substr(place + part.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Bits, RefusedConfigTest,
    ::testing::Values(
        BadCase{
            "Bit32",
            {.iptables_drop_bit = 32},
            "",
            {"invalid configuration: iptablesDropBit (--iptables-drop-bit) 32 must be between 0 "
             "and 31, inclusive",
             "from the flag --iptables-drop-bit"}},
        BadCase{"BitMinusOne",
                {.iptables_masquerade_bit = -1},
                "",
                {"invalid configuration: iptablesMasqueradeBit (--iptables-masquerade-bit) -1 must "
                 "be between 0 and 31, inclusive"}},
        BadCase{"Bit32WhereItHasNoEffect",
                {.iptables_drop_bit = 32, .emulated_version = "1.30"},
                "",
                {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive"}},
        BadCase{"Bit32WhereTheAgentIsOff",
                {.make_iptables_util_chains = false, .iptables_drop_bit = 32},
                "",
                {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive"}},
        BadCase{"Bit32InAFile",
                {},
                Kubelet("iptablesDropBit: 32\n"),
                {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive",
                 "f.yaml:3"}},
        BadCase{
            "EqualBitsInLegacyMode",
            WithBits(At("1.27", {kOff}), 9, 9),
            "",
            {"iptables-masquerade-bit and iptables-drop-bit must be different",
             "9 (from the flag --iptables-masquerade-bit)", "9 (from the flag", "Choose another"}},
        BadCase{"ABitThatEqualsTheOthersDefault",
                {.iptables_drop_bit = 14, .emulated_version = "1.24"},
                "",
                {"iptables-masquerade-bit and iptables-drop-bit must be different",
                 "14 (the default)", "14 (from the flag --iptables-drop-bit)"}},
        BadCase{"EqualBitsInAFile",
                At("1.26"),
                Kubelet("iptablesMasqueradeBit: 15\n"),
                {"must be different", "f.yaml:3", "15 (the default)"}},
        BadCase{"ABitFlagIn131",
                {.iptables_masquerade_bit = 14, .emulated_version = "1.31"},
                "",
                {"unknown flag: --iptables-masquerade-bit", "Kubernetes 1.31 removed it"}},
        BadCase{"ABitFlagWhereTheFileChooses134",
                {.iptables_drop_bit = 15},
                Agent("emulatedVersion: v1.34\n"),
                {"unknown flag: --iptables-drop-bit", "Kubernetes 1.34 is emulated",
                 "--emulated-version"}}),
    RowName);

INSTANTIATE_TEST_SUITE_P(
    Gates, RefusedConfigTest,
    ::testing::Values(
        BadCase{"AnUnknownGate",
                {.feature_gates = {"NoSuchGate=true"}},
                "",
                {"--feature-gates: ", "unrecognized feature gate: NoSuchGate",
                 "AllAlpha, AllBeta, ConnLabelMarking, IPTablesOwnershipCleanup"}},
        BadCase{"AnUnknownGateInOurOwnKind",
                {},
                Agent("featureGates: {NoSuchGate: true}\n"),
                {"f.yaml: ", "unrecognized feature gate: NoSuchGate"}},
        BadCase{"AGateOfALaterRelease",
                At("1.24", {kOn}),
                "",
                {"unrecognized feature gate: IPTablesOwnershipCleanup", "Kubernetes 1.24"}},
        BadCase{"AGateThatIsRemoved",
                At("1.30", {kOn}),
                "",
                {"unrecognized feature gate: IPTablesOwnershipCleanup", "Kubernetes 1.30"}},
        BadCase{"ALockedGate",
                At("1.28", {kOff}),
                "",
                {"cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to "
                 "true",
                 "IPTablesOwnershipCleanup (locked)"}},
        BadCase{"ALockedGateInAKubeletConfiguration",
                At("1.29"),
                Kubelet("featureGates: {IPTablesOwnershipCleanup: false}\n"),
                {"f.yaml: ", "feature is locked to true"}},
        BadCase{"AGateWithoutAValue",
                {.feature_gates = {"IPTablesOwnershipCleanup"}},
                "",
                {"invalid argument \"IPTablesOwnershipCleanup\" for \"--feature-gates\" flag: ",
                 "malformed pair, expect string=bool"}},
        BadCase{"AGateWithAWordForAValue",
                {.feature_gates = {"AllBeta=maybe"}},
                "",
                {"invalid value of AllBeta: maybe, err: "}}),
    RowName);

INSTANTIATE_TEST_SUITE_P(
    Others, RefusedConfigTest,
    ::testing::Values(
        BadCase{"AnUnknownIptablesMode",
                {.iptables_mode = "nftables"},
                "",
                {"--iptables-mode: invalid value \"nftables\"; accepted are auto, nft, legacy"}},
        BadCase{"AnUnknownIptablesModeInAFile",
                {},
                Agent("iptablesMode: none\n"),
                {"f.yaml:3: iptablesMode: invalid value \"none\"; accepted are auto, nft, legacy"}},
        BadCase{"AnIptablesModeThatIsNoText",
                {},
                Agent("iptablesMode: [nft]\n"),
                {"f.yaml:3: iptablesMode"}},
        BadCase{"AHostRootThatIsNotThere",
                {.host_root = "/no/such/directory"},
                "",
                {"--host-root: \"/no/such/directory\": No such file or directory"}},
        BadCase{"AHostRootThatIsAFile",
                {.host_root = "/proc/version"},
                "",
                {"--host-root: ", "Not a directory"}},
        BadCase{"AReleaseThatIsTooOld", At("1.23"), "", {"cannot emulate 1.23", "1.24 to 1.37"}},
        BadCase{"AnotherMajor", At("2.0"), "", {"cannot emulate 2.0", "1.24 to 1.37"}},
        BadCase{"NoReleaseAtAll", At("banana"), "", {"\"banana\"", "1.24 to 1.37"}},
        BadCase{"AnEmptyRelease", At(""), "", {"--emulated-version", "1.24 to 1.37"}},
        BadCase{"AnOldReleaseInAFile",
                {},
                Agent("emulatedVersion: '1.23'\n"),
                {"f.yaml:3: emulatedVersion: cannot emulate 1.23", "1.24 to 1.37"}},
        BadCase{"AnExplicitIPv6WithoutIPv6",
                {.ip_families = "ipv4,ipv6"},
                "",
                {"--ip-families: ipv6 is requested, but this network namespace has no IPv6",
                 "enable IPv6", "auto"}},
        BadCase{"AnExplicitIPv6InAFile",
                {},
                Agent("ipFamilies: ipv6\n"),
                {"f.yaml:3: ipFamilies: ipv6 is requested", "enable IPv6"}},
        BadCase{"AnUnknownFamily",
                {.ip_families = "inet"},
                "",
                {"--ip-families: invalid value \"inet\"", "accepted are auto, ipv4, ipv6"}},
        BadCase{"AFamilyTwice", {.ip_families = "ipv4,ipv4"}, "", {"invalid value \"ipv4,ipv4\""}},
        BadCase{"AutoAndAFamily", {.ip_families = "auto,ipv4"}, "", {"accepted are"}},
        BadCase{"NoFamily", {.ip_families = ""}, "", {"--ip-families: invalid value \"\""}},
        BadCase{"AnUnknownFamilyInAFile",
                {},
                Agent("ipFamilies: both\n"),
                {"f.yaml:3: ipFamilies: invalid value \"both\""}},
        BadCase{"APeriodThatIsTooShort",
                {.iptables_sync_period = absl::Milliseconds(999)},
                "",
                {"--iptables-sync-period: 999ms is not between 1s and 24h"}},
        BadCase{"APeriodThatIsTooLong",
                {.iptables_sync_period = absl::Hours(24) + absl::Nanoseconds(1)},
                "",
                {"--iptables-sync-period: 24h0m0.000000001s is not between 1s and 24h"}},
        BadCase{"APeriodInAFileThatIsTooShort",
                {},
                Agent("iptablesSyncPeriod: -1m\n"),
                {"f.yaml:3: iptablesSyncPeriod: -1m0s is not between 1s and 24h"}},
        BadCase{"AnAuditPeriodThatIsTooShort",
                {.audit_period = absl::Milliseconds(999)},
                "",
                {"--audit-period: 999ms is not between 1s and 24h, or 0s"}},
        BadCase{"AnAuditPeriodThatIsTooLong",
                {},
                Agent("auditPeriod: 25h\n"),
                {"f.yaml:3: auditPeriod: 25h0m0s is not between 1s and 24h, or 0s"}},
        BadCase{"AnUnknownWayToWatch",
                {.watch = "inotify"},
                Agent("watch: poll\n"),
                {"--watch: invalid value \"inotify\"; accepted are events, poll"}},
        BadCase{"AnUnknownWayToWatchInAFile",
                {},
                Agent("watch: Events\n"),
                {"f.yaml:3: watch: invalid value \"Events\"; accepted are events, poll"}},
        BadCase{"AnAddressThatIsAName",
                {.healthz_bind_address = "localhost:10270"},
                "",
                {"--healthz-bind-address: invalid value \"localhost:10270\"; it must be an IPv4",
                 "or empty for none"}},
        BadCase{"AnAddressInAFileWithoutAPort",
                {},
                Agent("metricsBindAddress: 127.0.0.1\n"),
                {"f.yaml:3: metricsBindAddress: invalid value \"127.0.0.1\"; it must be"}},
        BadCase{"AFileThatIsMissing",
                {.config = "/nonexistent/c.yaml"},
                "",
                {"/nonexistent/c.yaml", "No such file", "--config"}},
        BadCase{"AFileThatIsWrong", {}, Agent("unknown: 1\n"), {"f.yaml:3: unknown field"}}),
    RowName);

TEST(ConfigBlameTest, IsTheFlagsWhereItOverridesTheFile) {
  const ConfigFiles node;
  const auto config = node.Load(At("1.23"), Agent("emulatedVersion: '1.26'\n"));
  EXPECT_EQ(config.status().message().find("--emulated-version: cannot emulate 1.23"), 0u)
      << config.status();
}

}  // namespace
}  // namespace kipt::agent::config_refused_test
