// SPDX-License-Identifier: Apache-2.0
//
// IPVS mode's rules in the real iptables. Nothing of it was captured: it is held against rulesets
// that were written by hand from the same sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/skew/kube_proxy/other_modes.h"
#include "tests/skew/selftest/proxy_kernel_fixture.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::Iptables;
using testing::ProgramResult;

std::string HandWritten(const std::string& version, IpFamily family) {
  std::ifstream file(absl::StrCat(KIPT_TESTS_DIR "/interop/testdata/kube-proxy/ipvs-", version, "-",
                                  FamilyName(family), ".save"));
  EXPECT_TRUE(file.is_open()) << version;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class IpvsTest : public ProxyKernelTest {
 protected:
  static ProxySettings Settings(Version version, IpFamily family) {
    return {.version = version,
            .family = family,
            .pod_cidr = family == IpFamily::kIpv4 ? "10.180.0.0/16" : "fd00:180::/48"};
  }

  static void Sync(const Iptables& iptables, const ProxySettings& settings) {
    if (Does(settings.version, Trait::kMakesMarkDrop))
      EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
    const ProgramResult sets =
        testing::RunProgram({"ipset", "-exist", "restore"}, IpvsSets(settings));
    EXPECT_EQ(sets.exit_code, 0) << sets;
    Ensure(iptables, IpvsJumps(settings));
    Restore(iptables, IpvsSync(settings));
  }

  // nft front end: it saves only tables that were made.
  static Lines WithoutMangle(Lines lines) {
    std::erase_if(lines, [](const std::string& line) { return line.rfind("mangle: ", 0) == 0; });
    return lines;
  }
};

struct HandWrittenRow {
  const char* name;
  Version version;
  const char* file;
  IpFamily family;
  // Rules that the file leaves out.
  Lines more;
};

class IpvsHandWrittenTest : public IpvsTest,
                            public ::testing::WithParamInterface<HandWrittenRow> {};

TEST_P(IpvsHandWrittenTest, IsWhatStandsAfterASync) {
  const HandWrittenRow& row = GetParam();
  const Iptables iptables = Of(row.family);
  Sync(iptables, Settings(row.version, row.family));
  Lines standing = WithoutMangle(Saved(iptables));
  for (const std::string& line : row.more) {
    const auto at = std::find(standing.begin(), standing.end(), line);
    ASSERT_NE(at, standing.end()) << line;
    standing.erase(at);
  }
  EXPECT_EQ(standing, WithoutMangle(ComparableLines(HandWritten(row.file, row.family))));
}

Lines MoreOf128(const std::string& prefix) {
  return {
      absl::StrCat("nat: -A KUBE-SERVICES -m comment --comment \"Kubernetes service external ip + "
                   "port for masquerade and filter purpose\" -m set --match-set ",
                   prefix, "EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ"),
      absl::StrCat("filter: -A KUBE-IPVS-FILTER -m set --match-set ", prefix,
                   "EXTERNAL-IP dst,dst -j RETURN"),
      absl::StrCat("filter: -A KUBE-IPVS-FILTER -m set --match-set ", prefix,
                   "HEALTH-CHECK-NODE-PORT dst -j RETURN")};
}

INSTANTIATE_TEST_SUITE_P(
    Versions, IpvsHandWrittenTest,
    ::testing::Values(
        HandWrittenRow{"V1_23_v4", {1, 23}, "1.23", IpFamily::kIpv4, {}},
        HandWrittenRow{"V1_23_v6", {1, 23}, "1.23", IpFamily::kIpv6, {}},
        HandWrittenRow{"V1_28_v4", {1, 28}, "1.28", IpFamily::kIpv4, MoreOf128("KUBE-")},
        HandWrittenRow{"V1_28_v6", {1, 28}, "1.28", IpFamily::kIpv6, MoreOf128("KUBE-6-")}),
    [](const auto& row) { return std::string(row.param.name); });

class IpvsVersionsTest : public IpvsTest,
                         public ::testing::WithParamInterface<std::tuple<int, IpFamily>> {};

TEST_P(IpvsVersionsTest, ASecondSyncChangesNothingAndOnlyOldOnesEmptyKubeletsMarkDrop) {
  const auto& [minor, family] = GetParam();
  const Iptables iptables = Of(family);
  const ProxySettings settings = Settings({1, minor}, family);
  Sync(iptables, settings);
  const Lines once = Saved(iptables);
  Sync(iptables, settings);
  EXPECT_EQ(Saved(iptables), once);
  EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
  const Lines rule = {"KUBE-MARK-DROP", "-t", "nat", "-j", "MARK", "--or-mark", "0x8000"};
  Lines add = rule;
  add.insert(add.begin(), "-A");
  ASSERT_EQ(iptables.Run(add).exit_code, 0);
  Sync(iptables, settings);
  Lines check = rule;
  check.insert(check.begin(), "-C");
  EXPECT_EQ(iptables.Run(check).exit_code == 0, minor >= 20);
}

// Each at which something changes, and the ends.
INSTANTIATE_TEST_SUITE_P(Versions, IpvsVersionsTest,
                         ::testing::Combine(::testing::Values(17, 18, 19, 20, 21, 23, 24, 25, 26,
                                                              28, 29, 36),
                                            ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6)),
                         [](const auto& row) {
                           return absl::StrCat("V1_", std::get<0>(row.param), "_",
                                               FamilyName(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace kipt::skew
