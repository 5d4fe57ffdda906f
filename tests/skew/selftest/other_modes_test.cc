// SPDX-License-Identifier: Apache-2.0
//
// The generators of kube-proxy's other modes: nftables mode against captures, and what the kernel
// made of it; IPVS mode, of which nothing was captured, against rulesets that were written by hand.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/skew/selftest/proxy_kernel_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::ProgramResult;

struct NftablesVersion {
  int minor;
  // The versions whose captures have the same lines: in IPv4, and in IPv6.
  const char* v4;
  const char* v6;
  // Of `.nftables.change.input`.
  const char* change;
};
constexpr NftablesVersion kVersions[] = {
    {31, "1.31", "1.31", "1.31"}, {32, "1.31", "1.31", "1.31"}, {33, "1.33", "1.33", "1.31"},
    {34, "1.34", "1.33", "1.34"}, {35, "1.34", "1.33", "1.34"}, {36, "1.36", "1.36", "1.36"},
};

ProxySettings Settings(int minor, IpFamily family) {
  ProxySettings settings = CapturedSettings({1, minor}, family);
  settings.node_ip = family == IpFamily::kIpv4 ? "192.168.50.2" : "fd00:50::2";
  return settings;
}

// Sorted. The rules of a chain keep their order.
std::vector<std::string> Comparable(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const auto key = [](const std::string& line) {
    if (!absl::StartsWith(line, "add rule ")) return line;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 5));
    return absl::StrCat("add rule ", words[4]);
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return lines;
}

class NftablesTextTest : public ::testing::TestWithParam<NftablesVersion> {};

TEST_P(NftablesTextTest, AFirstSyncIsWhatTheRealOneWrote) {
  for (const IpFamily family : testing::kBothFamilies) {
    for (const Fixture fixture : {Fixture::kA, Fixture::kB}) {
      const bool four = family == IpFamily::kIpv4;
      const std::string name =
          absl::StrCat(four ? GetParam().v4 : GetParam().v6, fixture == Fixture::kA ? "-A" : "-B",
                       four ? "-v4" : "-v6", ".nftables.input");
      EXPECT_EQ(Comparable(NftablesSync(Settings(GetParam().minor, family), ServicesOf(fixture))),
                Comparable(ReadOwnCapture(name)))
          << name;
    }
  }
}

TEST_P(NftablesTextTest, ALaterSyncOfOneEndpointGoneIsWhatTheRealOneWrote) {
  const std::vector<ServicePort> before = ServicesOf(Fixture::kA);
  std::vector<ServicePort> after = before;
  after[0].endpoints.pop_back();
  EXPECT_EQ(
      Comparable(NftablesPartialSync(Settings(GetParam().minor, IpFamily::kIpv4), after, before)),
      Comparable(ReadOwnCapture(absl::StrCat(GetParam().change, "-A-v4.nftables.change.input"))));
}

std::string VersionName(const ::testing::TestParamInfo<NftablesVersion>& row) {
  return absl::StrCat("V1_", row.param.minor);
}
INSTANTIATE_TEST_SUITE_P(Versions, NftablesTextTest, ::testing::ValuesIn(kVersions), VersionName);

class NftablesKernelTest : public ProxyKernelTest,
                           public ::testing::WithParamInterface<NftablesVersion> {
 protected:
  static void Load(const std::string& text) {
    const ProgramResult result = testing::RunProgram({"nft", "-f", "-"}, text);
    EXPECT_EQ(result.exit_code, 0) << result << text;
  }
  static std::string Ruleset() { return testing::RunProgram({"nft", "list", "ruleset"}).out; }
  // Of the tables `kube-proxy`, every line, sorted.
  static std::vector<std::string> TableLines(const std::string& ruleset) {
    std::vector<std::string> lines;
    bool inside = false;
    for (const absl::string_view line : absl::StrSplit(ruleset, '\n')) {
      if (absl::StartsWith(line, "table ")) inside = absl::StrContains(line, " kube-proxy {");
      if (inside && !line.empty()) lines.emplace_back(line);
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

TEST_P(NftablesKernelTest, MakesOfItWhatTheWholeProgramLeft) {
  for (const IpFamily family : testing::kBothFamilies) {
    ProxySettings settings = Settings(GetParam().minor, family);
    settings.service_cidr = family == IpFamily::kIpv4 ? "172.30.0.0/16" : "fd00:30::/112";
    // A second full sync over the first changes nothing.
    for (int sync = 0; sync < 2; ++sync) Load(NftablesSync(settings, ServicesOf(Fixture::kA)));
  }
  EXPECT_EQ(TableLines(Ruleset()),
            TableLines(ReadOwnCapture(absl::StrCat(GetParam().v4, "-A.process-nftables.nft"))));
}

TEST_P(NftablesKernelTest, TakesChangesAndRemoval) {
  for (const IpFamily family : testing::kBothFamilies) {
    const ProxySettings settings = Settings(GetParam().minor, family);
    const std::vector<ServicePort> all = ServicesOf(Fixture::kB);
    std::vector<ServicePort> some = all;
    some[0].endpoints.pop_back();
    some[3].endpoints.clear();
    some.erase(some.begin() + 7);
    Load(NftablesSync(settings, {}));
    Load(NftablesPartialSync(settings, all, {}));
    Load(NftablesPartialSync(settings, some, all));
    const std::string now = Ruleset();
    EXPECT_EQ(absl::StrContains(now, "b/hairpin:p80"), family == IpFamily::kIpv4)
        << "refused from now on";
    EXPECT_THAT(now, Not(HasSubstr(" . tcp . 80 : goto service-HHSFNZHM")));
    Load(NftablesPartialSync(settings, all, some));
    EXPECT_THAT(Ruleset(), Not(HasSubstr("b/hairpin:p80")));
    Load(NftablesRemoval(family));
    EXPECT_THAT(TableLines(Ruleset()), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, NftablesKernelTest, ::testing::ValuesIn(kVersions), VersionName);

using testing::Iptables;

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
