// SPDX-License-Identifier: Apache-2.0
//
// The texts of the generator against what the real kube-proxy was seen to write.
#include "tests/skew/kube_proxy/proxy_rules.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

class CapturedTextTest : public ::testing::TestWithParam<CapturedVersion> {
 protected:
  const ProxySettings settings_ = SettingsOf(GetParam(), IpFamily::kIpv4);
  const std::vector<ServicePort> services_ = ServicesOf(Fixture::kA);
};

TEST_P(CapturedTextTest, AFullSyncIsWhatTheRealOneWrote) {
  EXPECT_EQ(ComparableLines(FullSync(settings_, services_)),
            ComparableLines(ReadCapturedInput(GetParam().input)));
}

TEST_P(CapturedTextTest, ALaterSyncWithNothingChangedIsWhatTheRealOneWrote) {
  const std::string captured = Does(GetParam().version, Trait::kPartialSyncs)
                                   ? ReadCapturedPartialInput(GetParam().nfacct)
                                   : ReadCapturedInput(GetParam().input);
  EXPECT_EQ(ComparableLines(PartialSync(settings_, services_, services_)),
            ComparableLines(captured));
}

INSTANTIATE_TEST_SUITE_P(Versions, CapturedTextTest, ::testing::ValuesIn(CapturedVersions()),
                         [](const auto& row) { return std::string(row.param.name); });

struct JumpsRow {
  Version version;
  // "1.17": the file.
  const char* captured;
};

const JumpsRow kJumps[] = {
    {{1, 17}, "1.17"}, {{1, 18}, "1.17"}, {{1, 23}, "1.24"}, {{1, 24}, "1.24"}, {{1, 25}, "1.25"},
    {{1, 26}, "1.25"}, {{1, 28}, "1.28"}, {{1, 30}, "1.28"}, {{1, 31}, "1.28"}, {{1, 36}, "1.28"},
};

TEST(CapturedJumpsTest, AreInTheOrderOfTheRealOnes) {
  for (const JumpsRow& row : kJumps) {
    for (const IpFamily family : testing::kBothFamilies) {
      std::string text;
      for (const ProxyJump& jump : JumpsOf(CapturedSettings(row.version, family))) {
        absl::StrAppend(&text, jump.table, "\t", jump.chain, "\t", jump.base_chain, "\t");
        for (const std::string& word : jump.match) {
          const char* quote = absl::StrContains(word, " ") ? "\"" : "";
          absl::StrAppend(&text, quote, word, quote, " ");
        }
        absl::StrAppend(&text, "-j ", jump.chain, "\n");
      }
      EXPECT_EQ(text, ReadCapturedJumps(row.captured)) << featuregates::ToString(row.version);
    }
  }
}

TEST(ProxyJumpsTest, The1_27OneEnsuresThePostroutingJumpLast) {
  std::vector<ProxyJump> jumps = JumpsOf(CapturedSettings({1, 27}, IpFamily::kIpv4));
  EXPECT_EQ(jumps.back().chain, "KUBE-POSTROUTING");
  std::rotate(jumps.end() - 3, jumps.end() - 1, jumps.end());
  EXPECT_EQ(jumps, JumpsOf(CapturedSettings({1, 28}, IpFamily::kIpv4)));
}

// What else 1.31 to 1.36 were seen to write, with the counters and all alike.
class PresentTest : public ::testing::TestWithParam<int> {
 protected:
  static ProxySettings Settings(IpFamily family = IpFamily::kIpv4) {
    ProxySettings settings = CapturedSettings({1, GetParam()}, family);
    settings.nfacct = true;
    return settings;
  }
  const std::vector<ServicePort> services_ = ServicesOf(Fixture::kA);
};

TEST_P(PresentTest, PartialSyncsOfAChangeAndOfADeletionAreWhatTheRealOneWrote) {
  std::vector<ServicePort> changed = services_;
  changed[0].endpoints.pop_back();
  EXPECT_EQ(ComparableLines(PartialSync(Settings(), changed, services_)),
            ComparableLines(ReadOwnCapture("1.31-A-v4.change.input")));
  const std::vector<ServicePort> rest = {changed[0], changed[2]};
  EXPECT_EQ(ComparableLines(PartialSync(Settings(), rest, changed)),
            ComparableLines(ReadOwnCapture("1.31-A-v4.delete.input")));
  const bool full = GetParam() >= 33;
  EXPECT_EQ(
      ComparableLines(full ? FullSync(Settings(), rest) : PartialSync(Settings(), rest, rest)),
      ComparableLines(ReadOwnCapture(full ? "1.33-A-v4.hour.input" : "1.32-A-v4.hour.input")))
      << "two hours later";
}

TEST_P(PresentTest, AnotherBitIsWhatTheRealOneWrote) {
  ProxySettings settings = Settings();
  settings.masquerade_bit = 20;
  EXPECT_EQ(ComparableLines(FullSync(settings, services_)),
            ComparableLines(ReadOwnCapture("1.31-A-v4.bit20.input")));
}

INSTANTIATE_TEST_SUITE_P(Versions, PresentTest, ::testing::Range(31, 37),
                         [](const auto& row) { return absl::StrCat("V1_", row.param); });

using CapturedRow = std::tuple<CapturedVersion, Fixture, IpFamily>;

class CapturedSaveTest : public ProxyKernelTest,
                         public ::testing::WithParamInterface<CapturedRow> {};

TEST_P(CapturedSaveTest, IsTheStateAfterJumpsAndAFullSync) {
  const auto& [captured, fixture, family] = GetParam();
  const testing::Iptables iptables = {.family = family};
  // Up to 1.24 what restores jumps to it; up to 1.19 the captures too found it there.
  if (captured.version <= Version{1, 24}) EnsureChain(iptables, "nat", "KUBE-MARK-DROP");
  Ensure(iptables, JumpsOf(CapturedSettings(captured.jumps, family)));
  if (captured.nfacct) {
    ASSERT_TRUE(EnsureCounters());
  }
  Restore(iptables, FullSync(SettingsOf(captured, family), ServicesOf(fixture)));
  // What the monitor makes; a kube-proxy's first sync in an empty namespace comes before.
  for (const char* table : {"mangle", "nat", "filter"}) {
    EnsureChain(iptables, table, "KUBE-PROXY-CANARY");
  }
  EXPECT_EQ(Saved(iptables), ComparableLines(ReadCapturedSave(captured, fixture, family)));
}

std::string CapturedName(const ::testing::TestParamInfo<CapturedRow>& row) {
  const auto& [captured, fixture, family] = row.param;
  return absl::StrCat(captured.name, fixture == Fixture::kA ? "_A_" : "_B_", FamilyName(family));
}

INSTANTIATE_TEST_SUITE_P(Versions, CapturedSaveTest,
                         ::testing::Combine(::testing::ValuesIn(CapturedVersions()),
                                            ::testing::Values(Fixture::kA, Fixture::kB),
                                            ::testing::ValuesIn(testing::kBothFamilies)),
                         CapturedName);

}  // namespace
}  // namespace kipt::skew
