// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds that is no rule, and its allow list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "tests/agent/audit/audited.h"

namespace kipt::agent {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const AuditOptions kLegacy = {};
const AuditOptions kCleanup = {.mode = Mode::kCleanup};

AuditReport AuditFile(const std::string& name, const AuditOptions& options) {
  return Audit(ViewOf(SurveyOf("nft", ReadTestdata(name))), options);
}

CniConfigs Portmap() {
  CniConfigs cni;
  cni.references.push_back(
      {.file = "/etc/cni/net.d/10-net.conflist", .plugin = "portmap", .chain = "KUBE-MARK-MASQ"});
  return cni;
}

FwmarkRule Fwmark(uint32_t mark, uint32_t mask) {
  return {.family = netlink::Family::kIPv4,
          .mark = mark,
          .mask = mask,
          .text = absl::StrCat("100: from all fwmark ", mark, "/", mask)};
}

TEST(AuditNodeTest, RoutingRulesThatWantOurBitsAreAWarning) {
  NodeView view;
  view.ip_rules = {Fwmark(0x4000, 0x4000), Fwmark(0x80000, 0xff0000), Fwmark(0x1, 0xffffffff)};
  const AuditReport report = Audit(view, kLegacy);
  EXPECT_THAT(Lines(report), ElementsAre("warning IpRuleFwmark", "info IpRuleFwmark"));
  EXPECT_THAT(report.findings[0].details, ElementsAre(view.ip_rules[0].text));
  EXPECT_THAT(report.findings[1].message, HasSubstr("only packets without mark bit 0xc000"));
}

TEST(AuditNodeTest, AnInvertedRoutingRuleSparesPacketsWithOurBits) {
  const auto message_of = [](uint32_t mark, uint32_t mask) {
    NodeView view;
    view.ip_rules = {Fwmark(mark, mask)};
    view.ip_rules[0].inverted = true;
    const AuditReport report = Audit(view, kLegacy);
    return absl::StrCat(Line(report.findings.at(0)), ": ", report.findings[0].message);
  };
  const std::string warning = "warning IpRuleFwmark: routing rules ";
  // wg-quick's, and one for marked packets alone.
  EXPECT_THAT(message_of(0xca6c, 0xffffffff),
              HasSubstr(warning + "leave out packets with mark bit 0xc000"));
  EXPECT_THAT(message_of(0, 0x4000),
              HasSubstr(warning + "match only packets with mark bit 0x4000"));
  EXPECT_THAT(
      message_of(1, 0xffffffff),
      HasSubstr("info IpRuleFwmark: routing rules leave out packets without mark bit 0xc000"));
}

// ---- CNI ----

struct CniRow {
  std::string name;
  std::string file;  // empty: a fresh node
  AuditOptions options;
  AuditSeverity severity;
  std::string consequence;
};
void PrintTo(const CniRow& row, std::ostream* out) { *out << row.name; }

class AuditCniTest : public ::testing::TestWithParam<CniRow> {};

TEST_P(AuditCniTest, SaysWhetherTheNextAddFails) {
  NodeView view =
      ViewOf(SurveyOf("nft", GetParam().file.empty() ? "" : ReadTestdata(GetParam().file)));
  view.cni = Portmap();
  const AuditReport report = Audit(view, GetParam().options);
  const AuditFinding* finding = FindKind(report, AuditKind::kCniConfig);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, GetParam().severity);
  EXPECT_THAT(finding->consequence, HasSubstr(GetParam().consequence));
  EXPECT_THAT(finding->details, ElementsAre("/etc/cni/net.d/10-net.conflist"));
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, AuditCniTest,
    ::testing::Values(CniRow{"AFreshNodeInCleanupModeFailsNow", "", kCleanup, AuditSeverity::kError,
                             "there is no nat/KUBE-MARK-MASQ: its next ADD will fail"},
                      CniRow{"InCleanupModeOldChainsLastUntilAReboot", "audited/portmap-v4.save",
                             kCleanup, AuditSeverity::kError, "no program makes the chain again"},
                      CniRow{"BeforeTheGateItWillFailLater", "audited/portmap-v4.save", kLegacy,
                             AuditSeverity::kError, "Once IPTablesOwnershipCleanup is on"},
                      CniRow{"KubeProxyKeepsItWorking", "rulesets/kube-proxy-1.28-A-v4.save",
                             kCleanup, AuditSeverity::kWarning, "still writes nat/KUBE-MARK-MASQ"},
                      CniRow{"IpvsModeToo", "audited/ipvs-1.28-v4.save", kCleanup,
                             AuditSeverity::kWarning, "still writes nat/KUBE-MARK-MASQ"}),
    [](const auto& row) { return row.param.name; });

TEST(AuditNodeTest, UnreadableCniSourcesAreAWarning) {
  NodeView view;
  view.cni.problems = {"/etc/cni/net.d: permission denied"};
  const AuditReport report = Audit(view, kCleanup);
  EXPECT_THAT(Lines(report), ElementsAre("warning CniConfigUnreadable"));
  EXPECT_THAT(report.findings[0].details, ElementsAre(view.cni.problems[0]));
}

TEST(AuditNodeTest, CniConfigsThatNameTheirOwnChainsAreNone) {
  NodeView view;
  view.cni = Portmap();
  view.cni.references[0].chain = "MY-MARK-MASQ";
  EXPECT_THAT(Audit(view, kCleanup).findings, IsEmpty());
}

// ---- the node ----

TEST(AuditNodeTest, RouteLocalnetWithoutTheMartianRuleIsAnError) {
  NodeView view = ViewOf(SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.25-A-v4.save")));
  view.route_localnet.interfaces = {"all"};
  EXPECT_THAT(Lines(Audit(view, kLegacy)),
              Contains("error RouteLocalnetExposed filter/KUBE-FIREWALL"));
  view.surveys[0].tables[{"ip", "kube-iptables-agent"}]["input"] = {};
  EXPECT_EQ(FindKind(Audit(view, kLegacy), AuditKind::kRouteLocalnetExposed), nullptr);
  NodeView safe = ViewOf(SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save")));
  safe.route_localnet.interfaces = {"eth0"};
  EXPECT_EQ(FindKind(Audit(safe, kLegacy), AuditKind::kRouteLocalnetExposed), nullptr);
}

TEST(AuditNodeTest, WhatCouldNotBeReadIsSaid) {
  NodeView view;
  view.problems = {"legacy tables: iptables-legacy-save ended with exit status 4"};
  const AuditReport report = Audit(view, kLegacy);
  EXPECT_THAT(Lines(report), ElementsAre("warning NotSeen"));
  EXPECT_TRUE(AuditExitNeedsAttention(report));
}

TEST(AuditNodeTest, EveryNamespaceHasItsName) {
  std::vector<NodeView> views(2);
  views[1] = ViewOf(SurveyOf("nft", ReadTestdata("audited/portmap-v4.save")));
  views[1].name = "/run/netns/pod1";
  const AuditReport report = Audit(views, kLegacy);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].netns, "/run/netns/pod1");
  EXPECT_THAT(report.kube_proxy, IsEmpty());
}

// ---- the allow list ----

TEST(AuditNodeTest, AllowedFindingsAreShownAndDoNotCount) {
  AuditOptions options;
  options.allow = *ParseAllowList("ChainUser nat/KUBE-MARK-MASQ -A CNI-DN- # until spring");
  const AuditReport report = AuditFile("audited/portmap-v4.save", options);
  EXPECT_THAT(Lines(report), ElementsAre("allowed ChainUser nat/KUBE-MARK-MASQ"));
  EXPECT_EQ(report.findings[0].allowed, "until spring");
  EXPECT_EQ(report.allowed, 1U);
  EXPECT_FALSE(AuditExitNeedsAttention(report));
}

TEST(AuditNodeTest, AnEntryThatMatchesNothingIsInformation) {
  AuditOptions options;
  options.allow = *ParseAllowList("ChainUser nat/KUBE-MARK-DROP");
  const AuditReport report = AuditFile("audited/portmap-v4.save", options);
  EXPECT_THAT(Lines(report),
              ElementsAre("error ChainUser nat/KUBE-MARK-MASQ", "info AllowEntryUnused"));
  EXPECT_THAT(report.findings[1].message, HasSubstr("line 1: ChainUser nat/KUBE-MARK-DROP"));
}

TEST(AuditNodeTest, AnUnusedEntryIsReportedByAuditsThatCanFindItsKind) {
  const AllowList allow = *ParseAllowList(
      "ChainUser *\nKubeProxy *\nRouteLocalnetExposed *\nCleanupBlocked *\nLocalhostNodePorts *\n"
      "SavedRules *\nKernelTooOld *\nIpvsInUse *\nLegacyRulesStay *\n* nat/KUBE-NODEPORTS\n");
  struct {
    NodeChange change;
    std::vector<int> unused;  // lines
  } const rows[] = {{NodeChange::kOwnershipCleanup, {1, 2, 3, 6, 10}},
                    {NodeChange::kKubeProxyNftables, {1, 2, 3, 4, 5, 6, 7, 8, 10}},
                    {NodeChange::kKubeProxyIpvsRemoval, {2, 3, 4, 6, 8, 10}},
                    {NodeChange::kIptablesNft, {2, 3, 6, 9, 10}}};
  for (const auto& row : rows) {
    AuditOptions options;
    options.allow = allow;
    options.change = row.change;
    std::vector<int> unused;
    for (const AuditFinding& finding : Audit(NodeView(), options).findings) {
      int line = 0;
      ASSERT_EQ(sscanf(finding.message.c_str(), "the allow list's line %d:", &line), 1);
      unused.push_back(line);
    }
    EXPECT_EQ(unused, row.unused) << ChangeName(row.change);
  }
}

TEST(AuditNodeTest, KindsHaveNamesThatCanBeReadBack) {
  for (int kind = 0; kind <= static_cast<int>(AuditKind::kAllowEntryUnused); ++kind) {
    const auto one = static_cast<AuditKind>(kind);
    EXPECT_EQ(AuditKindFromName(AuditKindName(one)), one) << kind;
  }
  EXPECT_EQ(AuditKindFromName("Nonsense"), std::nullopt);
}

}  // namespace
}  // namespace kipt::agent
