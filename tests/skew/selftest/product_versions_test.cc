// SPDX-License-Identifier: Apache-2.0
//
// The product cannot read the harness' table of versions. What it knows of them is held against it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/config/config.h"
#include "agent/detect/capabilities.h"
#include "featuregates/known_features.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/skew/versions/versions.h"
#include "tests/support/surveyed.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

TEST(ProductVersionsTest, KnowsTheSameReleases) {
  EXPECT_EQ(featuregates::kNewestKnownRelease, kNewest);
  EXPECT_EQ(featuregates::kOldestEmulatedVersion.minor, RowOf(Trait::kHint).first);
  EXPECT_TRUE(Does(featuregates::kDefaultEmulatedVersion, Trait::kGateSettable));
  EXPECT_TRUE(Does(featuregates::kDefaultEmulatedVersion, Trait::kGateOnByDefault));
}

TEST(ProductVersionsTest, HasTheGateAsEachReleaseHasIt) {
  for (int minor = featuregates::kOldestEmulatedVersion.minor; minor <= kNewest.minor; ++minor) {
    SCOPED_TRACE(minor);
    const Version version = {1, minor};
    const auto gates =
        featuregates::FeatureGates::Resolve({featuregates::KubeletComponent(version)}, {});
    ASSERT_TRUE(gates.ok()) << gates.status();
    EXPECT_EQ(gates->Enabled(featuregates::kIPTablesOwnershipCleanup),
              Does(version, Trait::kGateOnByDefault));
    const auto& states = gates->States();
    const auto state = std::find_if(states.begin(), states.end(), [](const auto& each) {
      return each.name == featuregates::kIPTablesOwnershipCleanup.name;
    });
    ASSERT_EQ(state != states.end(), Does(version, Trait::kGateKnown));
    if (state == states.end()) continue;
    EXPECT_EQ(state->locked, Does(version, Trait::kGateLocked));
    EXPECT_EQ(!state->locked, Does(version, Trait::kGateSettable));
  }
}

TEST(ProductVersionsTest, TakesTheFlagsForBitsAsEachReleaseDoes) {
  for (int minor = featuregates::kOldestEmulatedVersion.minor; minor <= kNewest.minor; ++minor) {
    agent::Flags flags;
    flags.emulated_version = absl::StrCat("1.", minor);
    flags.iptables_drop_bit = 5;
    EXPECT_EQ(agent::ResolveConfig(flags, {}, "/proc/self/status").ok(),
              Does({1, minor}, Trait::kBitFlags))
        << minor;
  }
}

TEST(ProductVersionsTest, AsksForWhatEachReleaseNeedsOfTheKernel) {
  std::map<std::string, std::vector<std::string>> releases;
  for (const auto& software :
       agent::ReadCapabilities({}, {netlink::Family::kIPv4, netlink::Family::kIPv6}).software) {
    for (const auto& one : software.capabilities) {
      releases[absl::StrCat(software.software, " ", one.feature)].push_back(
          absl::StrCat(one.since, "-", one.until));
    }
  }
  const auto since = [](Trait trait) { return absl::StrCat("1.", RowOf(trait).first, "-"); };
  const auto until = [](Trait trait) { return absl::StrCat("-1.", RowOf(trait).last); };
  using Texts = std::vector<std::string>;
  for (const char* feature : {"match mark", "target MARK", "target MASQUERADE"}) {
    EXPECT_EQ(releases[absl::StrCat("kubelet ", feature)], Texts{until(Trait::kGateSettable)});
  }
  for (const char* feature : {"match nfacct", "nfacct counters"}) {
    EXPECT_EQ(releases[absl::StrCat("kube-proxy-iptables ", feature)],
              Texts{since(Trait::kNfacct)});
  }
  EXPECT_EQ(releases["kube-proxy-nftables nf_tables"], Texts{since(Trait::kNftablesMode)});
}

// Whether some row of kube-proxy's iptables mode has its first release here, or its last one
// before.
bool ChangesAt(int minor) {
  const auto rows = Traits();
  return std::any_of(rows.begin(), rows.end(), [minor](const TraitRow& row) {
    return row.component == Component::kIptablesProxy &&
           (row.first == minor || row.last + 1 == minor);
  });
}

// The range of releases that audit reads from the rules that each release left has that one in it,
// and begins and ends where the table has a change.
TEST(ProductVersionsTest, AuditReadsTheReleaseFromWhatEachWrites) {
  std::set<std::pair<int, int>> ranges;
  for (const CapturedVersion& captured : CapturedVersions()) {
    const int minor = captured.version.minor;
    SCOPED_TRACE(captured.name);
    // Its jumps are another version's, or the kernel has no counters.
    if (captured.jumps != captured.version) continue;
    if (captured.nfacct != Does(captured.version, Trait::kNfacct)) continue;
    netlink::Survey survey;
    for (const IpFamily family : testing::kBothFamilies) {
      const auto parsed = agent::ParseSurvey(
          "nft", family == IpFamily::kIpv4 ? netlink::Family::kIPv4 : netlink::Family::kIPv6,
          ReadCapturedSave(captured, Fixture::kA, family), {});
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      survey.tables.insert(parsed->tables.begin(), parsed->tables.end());
    }
    const auto facts = agent::FindKubeProxy(survey);
    ASSERT_EQ(facts.size(), 2U);
    EXPECT_EQ(facts[0].mode, agent::KubeProxyMode::kIptables);
    // Nor does one sign contradict another.
    EXPECT_FALSE(absl::StrContains(absl::StrJoin(facts[0].evidence, "\n"), "left over"));
    EXPECT_LE(facts[0].oldest, minor);
    EXPECT_TRUE(facts[0].oldest == 0 || ChangesAt(facts[0].oldest)) << facts[0].oldest;
    if (facts[0].newest != 0) {
      EXPECT_GE(facts[0].newest, minor);
      EXPECT_TRUE(ChangesAt(facts[0].newest + 1)) << facts[0].newest;
    }
    ranges.emplace(facts[0].oldest, facts[0].newest);
  }
  EXPECT_GE(ranges.size(), 11U);
}

}  // namespace
}  // namespace kipt::skew
