// SPDX-License-Identifier: Apache-2.0
//
// The texts of the generator against what the real kube-proxy was seen to write.
#include "tests/skew/kube_proxy/proxy_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/selftest/captured_fixtures.h"

namespace kipt::skew {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::IpFamily;
using ::testing::IsSupersetOf;
using ::testing::Not;

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

TEST_P(CapturedTextTest, TheChainsOfAGoneServiceAreEmptiedAndDeletedByTheNextSync) {
  const std::vector<ServicePort> rest = {services_[0], services_[1]};
  const std::string later = PartialSync(settings_, rest, services_);
  const std::string chain = ServiceChain("KUBE-SVC-", services_[2]);
  EXPECT_THAT(ComparableLines(later),
              IsSupersetOf({absl::StrCat("nat: :", chain, " -"), "nat: -X " + chain}));
  EXPECT_THAT(later, HasSubstr("-X " + ServiceChain("KUBE-FW-", services_[2])));
  EXPECT_THAT(later, HasSubstr("-X " + EndpointChain(services_[2], services_[2].endpoints[0])));
  EXPECT_THAT(later, Not(HasSubstr("-X " + ServiceChain("KUBE-SVC-", services_[0]))));
  EXPECT_THAT(later, Not(HasSubstr("ns3/svc3")));
}

TEST_P(CapturedTextTest, TheOrderOfServicesAndEndpointsChangesNothingButTheOrderOfServices) {
  std::vector<ServicePort> turned = services_;
  std::reverse(turned.begin(), turned.end());
  if (GetParam().version >= Version{1, 20}) {
    for (ServicePort& port : turned) std::reverse(port.endpoints.begin(), port.endpoints.end());
  }
  EXPECT_EQ(ComparableLines(FullSync(settings_, turned)),
            ComparableLines(FullSync(settings_, services_)));
}

INSTANTIATE_TEST_SUITE_P(Versions, CapturedTextTest, ::testing::ValuesIn(CapturedVersions()),
                         [](const auto& row) { return std::string(row.param.name); });

struct JumpsRow {
  const char* name;
  Version version;
  // "1.17": the file.
  const char* captured;
};

class CapturedJumpsTest : public ::testing::TestWithParam<JumpsRow> {};

TEST_P(CapturedJumpsTest, AreInTheOrderOfTheRealOnes) {
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    std::string text;
    for (const ProxyJump& jump : JumpsOf(CapturedSettings(GetParam().version, family))) {
      absl::StrAppend(&text, jump.table, "\t", jump.chain, "\t", jump.base_chain, "\t");
      for (const std::string& word : jump.match) {
        const char* quote = absl::StrContains(word, " ") ? "\"" : "";
        absl::StrAppend(&text, quote, word, quote, " ");
      }
      absl::StrAppend(&text, "-j ", jump.chain, "\n");
    }
    EXPECT_EQ(text, ReadCapturedJumps(GetParam().captured));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Versions, CapturedJumpsTest,
    ::testing::Values(JumpsRow{"V1_17", {1, 17}, "1.17"}, JumpsRow{"V1_18", {1, 18}, "1.17"},
                      JumpsRow{"V1_23", {1, 23}, "1.24"}, JumpsRow{"V1_24", {1, 24}, "1.24"},
                      JumpsRow{"V1_25", {1, 25}, "1.25"}, JumpsRow{"V1_26", {1, 26}, "1.25"},
                      JumpsRow{"V1_28", {1, 28}, "1.28"}, JumpsRow{"V1_30", {1, 30}, "1.28"},
                      JumpsRow{"V1_31", {1, 31}, "1.28"}, JumpsRow{"V1_36", {1, 36}, "1.28"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ProxyJumpsTest, The1_27OneEnsuresThePostroutingJumpLast) {
  std::vector<ProxyJump> jumps = JumpsOf(CapturedSettings({1, 27}, IpFamily::kIpv4));
  EXPECT_EQ(jumps.back().chain, "KUBE-POSTROUTING");
  std::rotate(jumps.end() - 3, jumps.end() - 1, jumps.end());
  EXPECT_EQ(jumps, JumpsOf(CapturedSettings({1, 28}, IpFamily::kIpv4)));
}

TEST(ProxyRulesTest, WhatWasNotCapturedIsAsTheNewestThatWas) {
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    const ProxySettings known = CapturedSettings(kNewestCaptured, family);
    for (int minor = kNewestCaptured.minor + 1; minor <= kNewest.minor; ++minor) {
      const ProxySettings settings = CapturedSettings({1, minor}, family);
      EXPECT_EQ(JumpsOf(settings), JumpsOf(known));
      for (const Fixture fixture : {Fixture::kA, Fixture::kB}) {
        EXPECT_EQ(FullSync(settings, ServicesOf(fixture)), FullSync(known, ServicesOf(fixture)));
      }
    }
  }
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

TEST_P(PresentTest, BothFixturesInBothFamiliesAreWhatTheRealOneWrote) {
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    for (const Fixture fixture : {Fixture::kA, Fixture::kB}) {
      const std::string name = absl::StrCat("1.31-", fixture == Fixture::kA ? "A" : "B",
                                            family == IpFamily::kIpv4 ? "-v4" : "-v6", ".input");
      EXPECT_EQ(ComparableLines(FullSync(Settings(family), ServicesOf(fixture))),
                ComparableLines(ReadOwnCapture(name)))
          << name;
    }
  }
}

TEST_P(PresentTest, WithoutTheCountersNoRuleNamesThem) {
  ProxySettings settings = Settings();
  settings.nfacct = false;
  for (const Fixture fixture : {Fixture::kA, Fixture::kB}) {
    const char* name =
        fixture == Fixture::kA ? "1.31-A-v4.nonfacct.input" : "1.31-B-v4.nonfacct.input";
    EXPECT_EQ(ComparableLines(FullSync(settings, ServicesOf(fixture))),
              ComparableLines(ReadOwnCapture(name)));
  }
}

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

TEST_P(PresentTest, AnotherBitAndNoLocalhostNodePortsAreWhatTheRealOneWrote) {
  ProxySettings settings = Settings();
  settings.masquerade_bit = 20;
  EXPECT_EQ(ComparableLines(FullSync(settings, services_)),
            ComparableLines(ReadOwnCapture("1.31-A-v4.bit20.input")));
  settings = Settings();
  settings.localhost_node_ports = false;
  EXPECT_EQ(ComparableLines(FullSync(settings, services_)),
            ComparableLines(ReadOwnCapture("1.31-A-v4.nolocalhost.input")));
}

INSTANTIATE_TEST_SUITE_P(Versions, PresentTest, ::testing::Range(31, 37),
                         [](const auto& row) { return absl::StrCat("V1_", row.param); });

struct HashRow {
  const char* name;
  ServicePort port;
  Version version;
  // As kube-proxy was seen to hash them.
  const char* service;
  const char* endpoint;
};

class ChainHashTest : public ::testing::TestWithParam<HashRow> {};

TEST_P(ChainHashTest, IsTheRealOne) {
  const HashRow& row = GetParam();
  EXPECT_EQ(ServiceChain("KUBE-SVC-", row.port, row.version), row.service);
  EXPECT_EQ(EndpointChain(row.port, row.port.endpoints.back(), row.version), row.endpoint);
}

INSTANTIATE_TEST_SUITE_P(
    Ports, ChainHashTest,
    ::testing::Values(HashRow{"Plain", ServicesOf(Fixture::kA)[1], kNewest,
                              "KUBE-SVC-GNZBNJ2PO5MGZ6GT", "KUBE-SEP-LAQF32EYUEX3U33M"},
                      HashRow{"Udp", ServicesOf(Fixture::kB)[4], kNewest,
                              "KUBE-SVC-FOWGWLLH2Z2C56GG", "KUBE-SEP-KL2GRMNGYJG2LU5L"},
                      HashRow{"Unnamed", ServicesOf(Fixture::kB)[6], kNewest,
                              "KUBE-SVC-WSFPAOXL6NH24T7J", "KUBE-SEP-J62GIAR264ZDW4Q5"},
                      HashRow{"UnnamedOf1_18",
                              ServicesOf(Fixture::kB)[6],
                              {1, 18},
                              "KUBE-SVC-ASKW6OVZYVKNR33D",
                              "KUBE-SEP-QSDQBQH2VQSLAXDG"},
                      HashRow{"Ipv6", ServicesOf(Fixture::kB)[10], kNewest,
                              "KUBE-SVC-D6O7BHXR65EBYOR5", "KUBE-SEP-S525VJ3SFOAJQVW6"}),
    [](const auto& row) { return std::string(row.param.name); });

struct StaleRow {
  const char* name;
  Version version;
  std::string chain;
  bool deletes;
};

class StaleChainTest : public ::testing::TestWithParam<StaleRow> {};

TEST_P(StaleChainTest, IsDeletedByVersionsThatKnowItsPrefix) {
  const ProxySettings settings = CapturedSettings(GetParam().version, IpFamily::kIpv4);
  const std::string text = FullSync(settings, ServicesOf(Fixture::kA), {GetParam().chain});
  EXPECT_EQ(absl::StrContains(text, GetParam().chain + " - [0:0]\n"), GetParam().deletes);
  EXPECT_EQ(absl::StrContains(text, "-X " + GetParam().chain + "\n"), GetParam().deletes);
}

INSTANTIATE_TEST_SUITE_P(Chains, StaleChainTest,
                         ::testing::Values(StaleRow{"SvcOf1_17", {1, 17}, "KUBE-SVC-OLD", true},
                                           StaleRow{"SepOf1_30", {1, 30}, "KUBE-SEP-OLD", true},
                                           StaleRow{"FwOf1_30", {1, 30}, "KUBE-FW-OLD", true},
                                           StaleRow{"XlbOf1_23", {1, 23}, "KUBE-XLB-OLD", true},
                                           StaleRow{"XlbOf1_27", {1, 27}, "KUBE-XLB-OLD", true},
                                           StaleRow{"XlbOf1_28", {1, 28}, "KUBE-XLB-OLD", false},
                                           StaleRow{"ExtOf1_23", {1, 23}, "KUBE-EXT-OLD", false},
                                           StaleRow{"SvlOf1_23", {1, 23}, "KUBE-SVL-OLD", false},
                                           StaleRow{"ExtOf1_24", {1, 24}, "KUBE-EXT-OLD", true},
                                           StaleRow{
                                               "MarkDropOf1_25", {1, 25}, "KUBE-MARK-DROP", false},
                                           StaleRow{"ForeignOf1_30", {1, 30}, "CNI-DN-1", false}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ProxyRulesTest, ChainsThatAreStillNeededAreNotDeleted) {
  const ProxySettings settings = CapturedSettings({1, 25}, IpFamily::kIpv4);
  const std::vector<ServicePort> services = ServicesOf(Fixture::kA);
  EXPECT_EQ(FullSync(settings, services, {ServiceChain("KUBE-SVC-", services[0])}),
            FullSync(settings, services));
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

struct LocalhostRow {
  const char* name;
  Version version;
  IpFamily family;
  bool localhost_node_ports;
  bool martian_rule;
  // In the rule that leads to the node ports.
  const char* exception;
};

class LocalhostNodePortsTest : public ::testing::TestWithParam<LocalhostRow> {};

TEST_P(LocalhostNodePortsTest, DecideOnTheMartianRuleAndTheWayToNodePorts) {
  const LocalhostRow& row = GetParam();
  ProxySettings settings = CapturedSettings(row.version, row.family);
  settings.localhost_node_ports = row.localhost_node_ports;
  const std::string text = FullSync(settings, {});
  EXPECT_EQ(absl::StrContains(text, ":KUBE-FIREWALL - "), row.martian_rule);
  EXPECT_EQ(absl::StrContains(text, "-A KUBE-FIREWALL "), row.martian_rule);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("-m addrtype --dst-type LOCAL ", row.exception,
                                           "-j KUBE-NODEPORTS\n")));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, LocalhostNodePortsTest,
    ::testing::Values(
        LocalhostRow{"On", {1, 27}, IpFamily::kIpv4, true, true, ""},
        LocalhostRow{"Off", {1, 27}, IpFamily::kIpv4, false, false, "! -d 127.0.0.0/8 "},
        LocalhostRow{"Ipv6", {1, 27}, IpFamily::kIpv6, true, false, "! -d ::1/128 "},
        LocalhostRow{"OnIn1_26", {1, 26}, IpFamily::kIpv4, true, false, ""},
        LocalhostRow{"OffIn1_26", {1, 26}, IpFamily::kIpv4, false, false, "! -d 127.0.0.0/8 "},
        LocalhostRow{"UnknownIn1_25", {1, 25}, IpFamily::kIpv4, false, false, ""},
        LocalhostRow{"Ipv6In1_25", {1, 25}, IpFamily::kIpv6, true, false, ""}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kipt::skew
