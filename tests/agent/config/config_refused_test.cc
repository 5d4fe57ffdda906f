// SPDX-License-Identifier: Apache-2.0
//
// Every wrong flag and file that LoadConfig refuses, and the words it refuses it with.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/config/config.h"
#include "gtest/gtest.h"
#include "tests/agent/config/config_files.h"

namespace kipt::agent::config_refused_test {
namespace {

struct BadCase {
  std::string name;
  Flags flags;
  std::vector<std::string> parts;  // of the message, in order
  std::string file = {};
};

TEST(RefusedConfigTest, SaysWhatIsWrongAndHowToMendIt) {
  const BadCase rows[] = {
      // Bits.
      {"Bit32",
       {.iptables_drop_bit = 32},
       {"invalid configuration: iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, "
        "inclusive",
        "from the flag --iptables-drop-bit"}},
      {"BitMinusOne",
       {.iptables_masquerade_bit = -1},
       {"invalid configuration: iptablesMasqueradeBit (--iptables-masquerade-bit) -1 must be "
        "between 0 and 31, inclusive"}},
      {"Bit32WhereItHasNoEffect",
       {.iptables_drop_bit = 32, .emulated_version = "1.30"},
       {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive"}},
      {"Bit32WhereTheAgentIsOff",
       {.make_iptables_util_chains = false, .iptables_drop_bit = 32},
       {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive"}},
      {"Bit32InAFile",
       {},
       {"iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive", "f.yaml:3"},
       Kubelet("iptablesDropBit: 32\n")},
      {"EqualBitsInLegacyMode",
       WithBits(At("1.27", {kOff}), 9, 9),
       {"iptables-masquerade-bit and iptables-drop-bit must be different",
        "9 (from the flag --iptables-masquerade-bit)", "9 (from the flag", "Choose another"}},
      {"ABitThatEqualsTheOthersDefault",
       {.iptables_drop_bit = 14, .emulated_version = "1.24"},
       {"iptables-masquerade-bit and iptables-drop-bit must be different", "14 (the default)",
        "14 (from the flag --iptables-drop-bit)"}},
      {"EqualBitsInAFile",
       At("1.26"),
       {"must be different", "f.yaml:3", "15 (the default)"},
       Kubelet("iptablesMasqueradeBit: 15\n")},
      {"ABitFlagIn131",
       {.iptables_masquerade_bit = 14, .emulated_version = "1.31"},
       {"unknown flag: --iptables-masquerade-bit", "Kubernetes 1.31 removed it"}},
      {"ABitFlagWhereTheFileChooses134",
       {.iptables_drop_bit = 15},
       {"unknown flag: --iptables-drop-bit", "Kubernetes 1.34 is emulated", "--emulated-version"},
       Agent("emulatedVersion: v1.34\n")},
      // Gates.
      {"AnUnknownGate",
       {.feature_gates = {"NoSuchGate=true"}},
       {"--feature-gates: ", "unrecognized feature gate: NoSuchGate",
        "AllAlpha, AllBeta, ConnLabelMarking, IPTablesOwnershipCleanup"}},
      {"AnUnknownGateInOurOwnKind",
       {},
       {"f.yaml: ", "unrecognized feature gate: NoSuchGate"},
       Agent("featureGates: {NoSuchGate: true}\n")},
      {"AGateOfALaterRelease",
       At("1.24", {kOn}),
       {"unrecognized feature gate: IPTablesOwnershipCleanup", "Kubernetes 1.24"}},
      {"AGateThatIsRemoved",
       At("1.30", {kOn}),
       {"unrecognized feature gate: IPTablesOwnershipCleanup", "Kubernetes 1.30"}},
      {"ALockedGate",
       At("1.28", {kOff}),
       {"cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to true",
        "IPTablesOwnershipCleanup (locked)"}},
      {"ALockedGateInAKubeletConfiguration",
       At("1.29"),
       {"f.yaml: ", "feature is locked to true"},
       Kubelet("featureGates: {IPTablesOwnershipCleanup: false}\n")},
      {"AGateWithoutAValue",
       {.feature_gates = {"IPTablesOwnershipCleanup"}},
       {"invalid argument \"IPTablesOwnershipCleanup\" for \"--feature-gates\" flag: ",
        "malformed pair, expect string=bool"}},
      {"AGateWithAWordForAValue",
       {.feature_gates = {"AllBeta=maybe"}},
       {"invalid value of AllBeta: maybe, err: "}},
      // Others.
      {"AnUnknownIptablesMode",
       {.iptables_mode = "nftables"},
       {"--iptables-mode: invalid value \"nftables\"; accepted are auto, nft, legacy"}},
      {"AnUnknownIptablesModeInAFile",
       {},
       {"f.yaml:3: iptablesMode: invalid value \"none\"; accepted are auto, nft, legacy"},
       Agent("iptablesMode: none\n")},
      {"AnIptablesModeThatIsNoText",
       {},
       {"f.yaml:3: iptablesMode"},
       Agent("iptablesMode: [nft]\n")},
      {"AHostRootThatIsNotThere",
       {.host_root = "/no/such/directory"},
       {"--host-root: \"/no/such/directory\": No such file or directory"}},
      {"AHostRootThatIsAFile",
       {.host_root = "/proc/version"},
       {"--host-root: ", "Not a directory"}},
      {"AReleaseThatIsTooOld", At("1.23"), {"cannot emulate 1.23", "1.24 to 1.37"}},
      {"AnotherMajor", At("2.0"), {"cannot emulate 2.0", "1.24 to 1.37"}},
      {"NoReleaseAtAll", At("banana"), {"\"banana\"", "1.24 to 1.37"}},
      {"AnEmptyRelease", At(""), {"--emulated-version", "1.24 to 1.37"}},
      {"AnOldReleaseInAFile",
       {},
       {"f.yaml:3: emulatedVersion: cannot emulate 1.23", "1.24 to 1.37"},
       Agent("emulatedVersion: '1.23'\n")},
      {"AnExplicitIPv6WithoutIPv6",
       {.ip_families = "ipv4,ipv6"},
       {"--ip-families: ipv6 is requested, but this network namespace has no IPv6", "enable IPv6",
        "auto"}},
      {"AnExplicitIPv6InAFile",
       {},
       {"f.yaml:3: ipFamilies: ipv6 is requested", "enable IPv6"},
       Agent("ipFamilies: ipv6\n")},
      {"AnUnknownFamily",
       {.ip_families = "inet"},
       {"--ip-families: invalid value \"inet\"", "accepted are auto, ipv4, ipv6"}},
      {"AFamilyTwice", {.ip_families = "ipv4,ipv4"}, {"invalid value \"ipv4,ipv4\""}},
      {"AutoAndAFamily", {.ip_families = "auto,ipv4"}, {"accepted are"}},
      {"NoFamily", {.ip_families = ""}, {"--ip-families: invalid value \"\""}},
      {"AnUnknownFamilyInAFile",
       {},
       {"f.yaml:3: ipFamilies: invalid value \"both\""},
       Agent("ipFamilies: both\n")},
      {"APeriodThatIsTooShort",
       {.iptables_sync_period = absl::Milliseconds(999)},
       {"--iptables-sync-period: 999ms is not between 1s and 24h"}},
      {"APeriodThatIsTooLong",
       {.iptables_sync_period = absl::Hours(24) + absl::Nanoseconds(1)},
       {"--iptables-sync-period: 24h0m0.000000001s is not between 1s and 24h"}},
      {"APeriodInAFileThatIsTooShort",
       {},
       {"f.yaml:3: iptablesSyncPeriod: -1m0s is not between 1s and 24h"},
       Agent("iptablesSyncPeriod: -1m\n")},
      {"AnAuditPeriodThatIsTooShort",
       {.audit_period = absl::Milliseconds(999)},
       {"--audit-period: 999ms is not between 1s and 24h, or 0s"}},
      {"AnAuditPeriodThatIsTooLong",
       {},
       {"f.yaml:3: auditPeriod: 25h0m0s is not between 1s and 24h, or 0s"},
       Agent("auditPeriod: 25h\n")},
      {"AnUnknownWayToWatch",
       {.watch = "inotify"},
       {"--watch: invalid value \"inotify\"; accepted are events, poll"},
       Agent("watch: poll\n")},
      {"AnUnknownWayToWatchInAFile",
       {},
       {"f.yaml:3: watch: invalid value \"Events\"; accepted are events, poll"},
       Agent("watch: Events\n")},
      {"AnAddressThatIsAName",
       {.healthz_bind_address = "localhost:10270"},
       {"--healthz-bind-address: invalid value \"localhost:10270\"; it must be an IPv4",
        "or empty for none"}},
      {"AnAddressInAFileWithoutAPort",
       {},
       {"f.yaml:3: metricsBindAddress: invalid value \"127.0.0.1\"; it must be"},
       Agent("metricsBindAddress: 127.0.0.1\n")},
      {"AFileThatIsMissing",
       {.config = "/nonexistent/c.yaml"},
       {"/nonexistent/c.yaml", "No such file", "--config"}},
      {"AFileThatIsWrong", {}, {"f.yaml:3: unknown field"}, Agent("unknown: 1\n")},
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

TEST(ConfigBlameTest, IsTheFlagsWhereItOverridesTheFile) {
  const ConfigFiles node;
  const auto config = node.Load(At("1.23"), Agent("emulatedVersion: '1.26'\n"));
  EXPECT_EQ(config.status().message().find("--emulated-version: cannot emulate 1.23"), 0u)
      << config.status();
}

}  // namespace
}  // namespace kipt::agent::config_refused_test
