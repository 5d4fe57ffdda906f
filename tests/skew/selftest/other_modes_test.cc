// SPDX-License-Identifier: Apache-2.0
//
// The generators of kube-proxy's other modes: nftables mode against captures, and what the kernel
// made of it; IPVS mode, of which nothing was captured, against rulesets that were written by hand.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

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
    const std::string text = NftablesSync(settings, ServicesOf(Fixture::kA));
    // A second full sync over the first changes nothing.
    for (int sync = 0; sync < 2; ++sync) {
      const ProgramResult loaded = testing::RunProgram({"nft", "-f", "-"}, text);
      EXPECT_EQ(loaded.exit_code, 0) << loaded << text;
    }
  }
  EXPECT_EQ(TableLines(testing::RunProgram({"nft", "list", "ruleset"}).out),
            TableLines(ReadOwnCapture(absl::StrCat(GetParam().v4, "-A.process-nftables.nft"))));
}

INSTANTIATE_TEST_SUITE_P(Versions, NftablesKernelTest, ::testing::ValuesIn(kVersions), VersionName);

// Rules that the files of 1.28 leave out.
Lines MoreOf128(IpFamily family) {
  const std::string set = family == IpFamily::kIpv4 ? "KUBE-" : "KUBE-6-";
  return {
      absl::StrCat("nat: -A KUBE-SERVICES -m comment --comment \"Kubernetes service external ip + "
                   "port for masquerade and filter purpose\" -m set --match-set ",
                   set, "EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ"),
      absl::StrCat("filter: -A KUBE-IPVS-FILTER -m set --match-set ", set,
                   "EXTERNAL-IP dst,dst -j RETURN"),
      absl::StrCat("filter: -A KUBE-IPVS-FILTER -m set --match-set ", set,
                   "HEALTH-CHECK-NODE-PORT dst -j RETURN")};
}

class IpvsTest : public ProxyKernelTest,
                 public ::testing::WithParamInterface<std::tuple<int, IpFamily>> {
 protected:
  // nft front end: it saves only tables that were made.
  static Lines WithoutMangle(Lines lines) {
    std::erase_if(lines, [](const std::string& line) { return line.rfind("mangle: ", 0) == 0; });
    return lines;
  }
};

TEST_P(IpvsTest, LeavesTheHandwrittenRulesAfterASync) {
  const auto& [minor, family] = GetParam();
  const testing::Iptables iptables = {.family = family};
  const ProxySettings settings = {
      .version = {1, minor},
      .family = family,
      .pod_cidr = family == IpFamily::kIpv4 ? "10.180.0.0/16" : "fd00:180::/48"};
  if (Does(settings.version, Trait::kMakesMarkDrop)) EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
  const ProgramResult sets =
      testing::RunProgram({"ipset", "-exist", "restore"}, IpvsSets(settings));
  EXPECT_EQ(sets.exit_code, 0) << sets;
  Ensure(iptables, IpvsJumps(settings));
  Restore(iptables, IpvsSync(settings));
  Lines current = WithoutMangle(Saved(iptables));
  for (const std::string& line : minor == 28 ? MoreOf128(family) : Lines()) {
    const auto at = std::find(current.begin(), current.end(), line);
    ASSERT_NE(at, current.end()) << line;
    current.erase(at);
  }
  const std::string by_hand =
      FileText(absl::StrCat(KIPT_TESTS_DIR "/interop/testdata/kube-proxy/ipvs-1.", minor, "-",
                            FamilyName(family), ".save"));
  EXPECT_EQ(current, WithoutMangle(ComparableLines(by_hand)));
}

INSTANTIATE_TEST_SUITE_P(Versions, IpvsTest,
                         ::testing::Combine(::testing::Values(23, 28),
                                            ::testing::ValuesIn(testing::kBothFamilies)),
                         [](const auto& row) {
                           return absl::StrCat("V1_", std::get<0>(row.param), "_",
                                               FamilyName(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace kipt::skew
