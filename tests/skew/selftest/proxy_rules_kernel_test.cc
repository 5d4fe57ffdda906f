// SPDX-License-Identifier: Apache-2.0
//
// The generator's commands and texts carried out by the real iptables, against what it saved when
// the real kube-proxy had done the same.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/skew/selftest/proxy_kernel_fixture.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::Iptables;
using testing::IptablesMode;

using CapturedRow = std::tuple<CapturedVersion, Fixture, IpFamily, IptablesMode>;

class CapturedSaveTest : public ProxyKernelTest,
                         public ::testing::WithParamInterface<CapturedRow> {};

TEST_P(CapturedSaveTest, IsWhatStandsAfterJumpsAndAFullSync) {
  const auto& [captured, fixture, family, mode] = GetParam();
  const Iptables iptables = Of(family, mode);
  // Up to 1.24 what restores jumps to it; up to 1.19 the captures too found it there.
  if (captured.version <= Version{1, 24}) EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
  Ensure(iptables, JumpsOf(CapturedSettings(captured.jumps, family)));
  if (captured.nfacct) {
    ASSERT_TRUE(EnsureCounters());
  }
  Restore(iptables, FullSync(SettingsOf(captured, family), ServicesOf(fixture)));
  MakeCanaries(iptables);
  EXPECT_EQ(Saved(iptables), ComparableLines(ReadCapturedSave(captured, fixture, family)));
}

std::string CapturedName(const ::testing::TestParamInfo<CapturedRow>& row) {
  const auto& [captured, fixture, family, mode] = row.param;
  return absl::StrCat(captured.name, fixture == Fixture::kA ? "_A_" : "_B_", FamilyName(family),
                      mode == IptablesMode::kLegacy ? "_legacy" : "");
}

INSTANTIATE_TEST_SUITE_P(Versions, CapturedSaveTest,
                         ::testing::Combine(::testing::ValuesIn(CapturedVersions()),
                                            ::testing::Values(Fixture::kA, Fixture::kB),
                                            ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6),
                                            ::testing::Values(IptablesMode::kNft)),
                         CapturedName);

// One of each layout.
std::vector<CapturedVersion> VersionsOfEachLayout() {
  std::vector<CapturedVersion> some = CapturedVersions();
  std::erase_if(some, [](const CapturedVersion& row) {
    return std::set<int>({17, 20, 23, 24, 30, 36}).count(row.version.minor) == 0;
  });
  return some;
}

INSTANTIATE_TEST_SUITE_P(Legacy, CapturedSaveTest,
                         ::testing::Combine(::testing::ValuesIn(VersionsOfEachLayout()),
                                            ::testing::Values(Fixture::kA, Fixture::kB),
                                            ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6),
                                            ::testing::Values(IptablesMode::kLegacy)),
                         CapturedName);

// What the fixtures leave out: each kind of external address under either policy, with local
// endpoints, only remote ones, and none; affinity where endpoints are local; several load
// balancers.
std::vector<ServicePort> EveryKind(IpFamily family) {
  const bool four = family == IpFamily::kIpv4;
  const auto at = [four](const char* prefix4, const char* prefix6, int host) {
    return absl::StrCat(four ? prefix4 : prefix6, host);
  };
  std::vector<ServicePort> ports;
  for (int kind = 0; kind < 24; ++kind) {
    ServicePort port;
    port.service = absl::StrCat("kinds/s", kind);
    port.cluster_ip = at("172.30.2.", "fd00:30:2::", kind + 1);
    port.port = 80;
    port.protocol = kind % 2 == 0 ? Protocol::kTcp : Protocol::kUdp;
    port.external_local = kind % 4 >= 2;
    port.internal_local = kind % 8 >= 4;
    port.node_port = 31000 + kind;
    port.external_ips = {at("192.0.2.", "2001:db8::", kind + 1)};
    port.load_balancer_ips = {at("198.51.100.", "2001:db8:1::", kind + 1),
                              at("198.51.100.", "2001:db8:1::", kind + 101)};
    if (kind % 3 != 0) port.source_ranges = {four ? "203.0.113.0/24" : "2001:db8:2::/64"};
    if (kind % 5 == 0) port.affinity_seconds = 60;
    port.health_check_node_port = port.external_local ? 32100 + kind : 0;
    if (kind < 8) port.endpoints.push_back({at("10.180.0.", "fd00:180::", 1), 80, true});
    if (kind < 16) port.endpoints.push_back({at("10.180.1.", "fd00:180:1::", 1), 80, false});
    ports.push_back(port);
  }
  return ports;
}

using VersionRow = std::tuple<int, IpFamily>;

class EveryVersionTest : public ProxyKernelTest, public ::testing::WithParamInterface<VersionRow> {
 protected:
  const IpFamily family_ = std::get<1>(GetParam());
  const Version version_ = {1, std::get<0>(GetParam())};
  const ProxySettings settings_ = CapturedSettings(version_, family_);
  const Iptables iptables_ = Of(family_);
};

// Chains are counted, for none may be left that no service has.
TEST_P(EveryVersionTest, IptablesTakesEveryKindOfServiceAndItsRemoval) {
  EnsureChain(iptables_, "nat", "KUBE-MARK-DROP");
  Restore(iptables_, FullSync(settings_, {}));
  const Lines empty = Saved(iptables_);
  const std::vector<ServicePort> services = EveryKind(family_);
  Restore(iptables_, PartialSync(settings_, services, {}));
  const Lines all = Saved(iptables_);
  EXPECT_GT(all.size(), empty.size() + 100);
  Restore(iptables_, PartialSync(settings_, services, services));
  EXPECT_EQ(Saved(iptables_), all);
  Restore(iptables_, PartialSync(settings_, {}, services));
  EXPECT_EQ(Saved(iptables_), empty);
}

TEST_P(EveryVersionTest, APartialSyncEndsWhereAFullOneDoes) {
  EnsureChain(iptables_, "nat", "KUBE-MARK-DROP");
  const std::vector<ServicePort> before = EveryKind(family_);
  std::vector<ServicePort> after = before;
  for (size_t i = 0; i < after.size(); i += 3) after[i].endpoints = before[(i + 8) % 24].endpoints;
  after[1].source_ranges.clear();
  after[2].external_local = !after[2].external_local;
  after.erase(after.begin() + 5);
  after.push_back(before[5]);
  after.back().service = "kinds/new";
  Restore(iptables_, FullSync(settings_, before));
  Restore(iptables_, PartialSync(settings_, after, before));
  const Lines partial = Saved(iptables_);
  const Lines stood = NatChains(iptables_);
  EXPECT_GT(stood.size(), 50U);
  Restore(iptables_, FullSync(settings_, after, stood));
  EXPECT_EQ(Saved(iptables_), partial);
}

class EveryModeTest : public ProxyKernelTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static ProxySettings Settings(IpFamily family) {
    ProxySettings settings = CapturedSettings(kNewestCaptured, family);
    settings.nfacct = true;
    return settings;
  }
};

// What every sync comes to where a rule names a counter that the kernel does not have, or a match:
// the table is refused, and filter comes first.
TEST_P(EveryModeTest, ARuleWithoutItsCounterIsRefusedAndNothingOfItsTableIsWritten) {
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    const Iptables iptables = Of(family, GetParam());
    Restore(iptables, FullSync(CapturedSettings(kNewestCaptured, family), {}));
    const Lines before = Saved(iptables);
    const std::string text = FullSync(Settings(family), ServicesOf(Fixture::kA));
    const testing::ProgramResult refused = iptables.Restore(text);
    EXPECT_EQ(refused.exit_code, GetParam() == IptablesMode::kNft ? 4 : 1) << refused;
    EXPECT_EQ(Saved(iptables), before);
  }
  // They are made for both families at once.
  ASSERT_TRUE(EnsureCounters());
  ASSERT_TRUE(EnsureCounters()) << "where they are already";
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    Restore(Of(family, GetParam()), FullSync(Settings(family), ServicesOf(Fixture::kA)));
  }
}

// By the prefixes that 1.23 looks for; not seen of a real one. What 1.24 left keeps naming the
// chain that is to be deleted, so nothing of nat is applied, and the next sync fares no better.
TEST_P(EveryModeTest, From1_24To1_23FailsForGoodWhereAServiceIsGone) {
  const Iptables iptables = Of(IpFamily::kIpv4, GetParam());
  const ProxySettings newer = CapturedSettings({1, 24}, IpFamily::kIpv4);
  const ProxySettings older = CapturedSettings({1, 23}, IpFamily::kIpv4);
  const std::vector<ServicePort> all = ServicesOf(Fixture::kA);
  EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
  Restore(iptables, FullSync(newer, all));
  const Lines stood = NatChains(iptables);
  for (int sync = 0; sync < 2; ++sync) {
    EXPECT_NE(iptables.Restore(FullSync(older, {all[0], all[2]}, stood)).exit_code, 0);
    EXPECT_EQ(NatChains(iptables), stood);
  }
  // With the same services it goes through.
  Restore(iptables, FullSync(older, all, stood));
}

INSTANTIATE_TEST_SUITE_P(Modes, EveryModeTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy),
                         [](const auto& row) {
                           return row.param == IptablesMode::kNft ? "Nft" : "Legacy";
                         });

INSTANTIATE_TEST_SUITE_P(Versions, EveryVersionTest,
                         ::testing::Combine(::testing::Range(kOldest.minor, kNewest.minor + 1),
                                            ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6)),
                         [](const auto& row) {
                           return absl::StrCat("V1_", std::get<0>(row.param), "_",
                                               FamilyName(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace kipt::skew
