// SPDX-License-Identifier: Apache-2.0
//
// The texts of the generator against what the real kube-proxy was seen to write.
#include "tests/skew/kube_proxy/proxy_rules.h"

#include <algorithm>

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

struct StaleRow {
  const char* name;
  Version version;
  std::string chain;
  bool deletes;
};

const StaleRow kStale[] = {
    {"SVC of 1.17", {1, 17}, "KUBE-SVC-OLD", true},
    {"SEP of 1.30", {1, 30}, "KUBE-SEP-OLD", true},
    {"FW of 1.30", {1, 30}, "KUBE-FW-OLD", true},
    {"XLB of 1.23", {1, 23}, "KUBE-XLB-OLD", true},
    {"XLB of 1.27", {1, 27}, "KUBE-XLB-OLD", true},
    {"XLB of 1.28", {1, 28}, "KUBE-XLB-OLD", false},
    {"EXT of 1.23", {1, 23}, "KUBE-EXT-OLD", false},
    {"SVL of 1.23", {1, 23}, "KUBE-SVL-OLD", false},
    {"EXT of 1.24", {1, 24}, "KUBE-EXT-OLD", true},
    {"KUBE-MARK-DROP of 1.25", {1, 25}, "KUBE-MARK-DROP", false},
    {"a foreign chain", {1, 30}, "CNI-DN-1", false},
};

TEST(StaleChainTest, IsDeletedByVersionsThatKnowItsPrefix) {
  for (const StaleRow& row : kStale) {
    const ProxySettings settings = CapturedSettings(row.version, IpFamily::kIpv4);
    const std::string text = FullSync(settings, ServicesOf(Fixture::kA), {row.chain});
    EXPECT_EQ(absl::StrContains(text, row.chain + " - [0:0]\n"), row.deletes) << row.name;
    EXPECT_EQ(absl::StrContains(text, "-X " + row.chain + "\n"), row.deletes) << row.name;
  }
}

TEST(PartialSyncTest, WritesTheChainsOfAllPortsOfAServiceOfWhichOneHasChanged) {
  const ProxySettings settings = CapturedSettings({1, 30}, IpFamily::kIpv4);
  const std::vector<ServicePort> before = ServicesOf(Fixture::kB);
  std::vector<ServicePort> after = before;
  after[4].endpoints.pop_back();  // UDP, beside TCP
  const std::vector<std::string> lines = ComparableLines(PartialSync(settings, after, before));
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].endpoints.empty() || after[i].internal_local) continue;
    const std::string line = absl::StrCat("nat: :", ServiceChain("KUBE-SVC-", after[i]), " -");
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), i == 4 || i == 5) << line;
  }
  EXPECT_THAT(lines, Contains("nat: -X " + EndpointChain(before[4], before[4].endpoints.back())));
}

TEST(PartialSyncTest, OfNewServicesAloneIsAFullSync) {
  const ProxySettings settings = CapturedSettings({1, 27}, IpFamily::kIpv4);
  for (const Fixture fixture : {Fixture::kA, Fixture::kB}) {
    EXPECT_EQ(PartialSync(settings, ServicesOf(fixture), {}),
              FullSync(settings, ServicesOf(fixture)));
  }
}

}  // namespace
}  // namespace kipt::skew
