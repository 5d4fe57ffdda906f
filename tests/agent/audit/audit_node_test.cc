// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds that is no rule, and its allow list.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/audit/allow_list.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "agent/audit/node_view.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

const AuditOptions kLegacy = {};
const AuditOptions kCleanup = {.mode = Mode::kCleanup};

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

struct CniRow {
  std::string name;
  std::string file;  // empty: a fresh node
  AuditOptions options;
  AuditSeverity severity;
  std::string consequence;
};

TEST(AuditCniTest, ReportsWhetherTheNextAddFails) {
  const CniRow rows[] = {
      {"AFreshNodeInCleanupModeFailsNow", "", kCleanup, AuditSeverity::kError,
       "there is no nat/KUBE-MARK-MASQ: its next ADD will fail"},
      {"InCleanupModeOldChainsLastUntilAReboot", "audited/portmap-v4.save", kCleanup,
       AuditSeverity::kError, "no program makes the chain again"},
      {"BeforeTheGateItWillFailLater", "audited/portmap-v4.save", kLegacy, AuditSeverity::kError,
       "Once IPTablesOwnershipCleanup is on"},
      {"KubeProxyKeepsItWorking", "rulesets/kube-proxy-1.28-A-v4.save", kCleanup,
       AuditSeverity::kWarning, "still writes nat/KUBE-MARK-MASQ"},
      {"IpvsModeToo", "audited/ipvs-1.28-v4.save", kCleanup, AuditSeverity::kWarning,
       "still writes nat/KUBE-MARK-MASQ"},
  };
  for (const CniRow& row : rows) {
    SCOPED_TRACE(row.name);
    NodeView view = ViewOf(SurveyOf("nft", row.file.empty() ? "" : ReadTestdata(row.file)));
    view.cni = Portmap();
    const AuditReport report = Audit(view, row.options);
    const AuditFinding* finding = FindKind(report, AuditKind::kCniConfig);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, row.severity);
    EXPECT_THAT(finding->consequence, HasSubstr(row.consequence));
    EXPECT_THAT(finding->details, ElementsAre("/etc/cni/net.d/10-net.conflist"));
  }
}

TEST(AuditNodeTest, CniConfigsThatNameTheirOwnChainsAreNone) {
  NodeView view;
  view.cni = Portmap();
  view.cni.references[0].chain = "MY-MARK-MASQ";
  EXPECT_THAT(Audit(view, kCleanup).findings, IsEmpty());
}

TEST(AuditNodeTest, RouteLocalnetWithoutADropOfMartiansIsAnError) {
  NodeView view = ViewOf(SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save")));
  view.route_localnet.interfaces = {"all"};
  EXPECT_THAT(Lines(Audit(view, kLegacy)),
              Contains("error RouteLocalnetExposed filter/KUBE-FIREWALL"));
  view.martians_dropped = true;
  EXPECT_EQ(FindKind(Audit(view, kLegacy), AuditKind::kRouteLocalnetExposed), nullptr);
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

TEST(AllowListTest, ReadsKindModeChainTextAndReason) {
  const absl::StatusOr<AllowList> list = ParseAllowList(
      "# what we know of\n"
      "\n"
      "ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap, until spring\n"
      "  MarkBitSet\tlegacy  *   -s 10.9.0.0/16 -m comment --comment \"a # b\" # VPN\n"
      "* nat/KUBE-MARK-DROP\r\n"
      "IpRuleFwmark *");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 4U);
  const AllowEntry first = {.line = 3,
                            .kind = "ChainUser",
                            .iptables_mode = "",
                            .chain = "nat/KUBE-MARK-MASQ",
                            .text = "-A CNI-DN-",
                            .reason = "portmap, until spring"};
  EXPECT_EQ((*list)[0], first);
  const AllowEntry second = {.line = 4,
                             .kind = "MarkBitSet",
                             .iptables_mode = "legacy",
                             .chain = "*",
                             .text = "-s 10.9.0.0/16 -m comment --comment \"a # b\"",
                             .reason = "VPN"};
  EXPECT_EQ((*list)[1], second);
  EXPECT_EQ((*list)[2].kind, "*");
  EXPECT_EQ((*list)[2].text, "");
  EXPECT_EQ(ToString((*list)[1]),
            "line 4: MarkBitSet legacy * -s 10.9.0.0/16 -m comment --comment \"a # b\"");
}

struct RefusedRow {
  std::string name;
  std::string text;
  std::string message;
};

TEST(AllowListRefusedTest, NamesTheLine) {
  const RefusedRow rows[] = {
      {"UnknownKind", "\nChainUsers nat/KUBE-MARK-MASQ",
       "line 2: \"ChainUsers\" is not a kind of finding"},
      {"NoChain", "ChainUser", "line 1: expected TABLE/CHAIN, or * for any, instead of \"\""},
      {"NoTable", "ChainUser KUBE-MARK-MASQ",
       "line 1: expected TABLE/CHAIN, or * for any, instead of \"KUBE-MARK-MASQ\""},
      {"UnknownTable", "ChainUser natt/KUBE-MARK-MASQ",
       "line 1: expected TABLE/CHAIN, or * for any, instead of \"natt/KUBE-MARK-MASQ\""},
      {"ModeButNoChain", "ChainUser nft",
       "line 1: expected TABLE/CHAIN, or * for any, instead of \"\""},
      {"Everything", "* * # peace", "line 1: this would allow everything"},
      {"Twice", "ChainUser * x # a\n# -\nChainUser *  x # b", "line 3: repeats line 1"},
  };
  for (const RefusedRow& row : rows) {
    SCOPED_TRACE(row.name);
    const absl::StatusOr<AllowList> list = ParseAllowList(row.text);
    ASSERT_FALSE(list.ok());
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(list.status().message()), row.message);
  }
}

TEST(AllowListTest, CoversWhatAllItsPartsCover) {
  const absl::StatusOr<AllowList> list =
      ParseAllowList("ChainUser nft nat/KUBE-MARK-MASQ -A CNI-DN-");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1U);
  const AllowEntry& entry = list->front();
  EXPECT_TRUE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ForeignRule", "nft", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "legacy", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-DROP", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-MASQ", "-A MINE -j X"));
}

NodeView HandWritten() {
  return ViewOf(SurveyOf("nft", ReadTestdata("audited/hand-written-v4.save")));
}

TEST(AuditTextTest, NamesOwnerPlaceAndRemedy) {
  const std::string text = AuditText(Audit(HandWritten(), AuditOptions()));
  EXPECT_THAT(text, StartsWith("error   ChainUser  nft ip nat/KUBE-MARK-DROP\n"));
  EXPECT_THAT(text, HasSubstr("(1 rule, hit by 5\n    packets)"));
  EXPECT_THAT(text, HasSubstr("      -A OFFICE-MASQ -s 192.168.7.0/24 -j KUBE-MARK-MASQ\n"));
  EXPECT_THAT(text, HasSubstr("    -> Drop in table filter"));
  EXPECT_THAT(text, EndsWith("2 errors, 4 warnings, 2 for information\n"));
}

TEST(AuditTextTest, AnAllowedFindingGivesItsReasonInsteadOfAdvice) {
  AuditOptions options;
  options.allow = *ParseAllowList("ChainUser nat/KUBE-MARK-MASQ -A CNI-DN- # until spring");
  const AuditReport report = AuditFile("audited/portmap-v4.save", options);
  EXPECT_FALSE(AuditExitNeedsAttention(report));
  const std::string text = AuditText(report);
  EXPECT_THAT(text, AllOf(StartsWith("allowed ChainUser"), HasSubstr("allowed: until spring"),
                          Not(HasSubstr("->"))));
  EXPECT_THAT(text, EndsWith("0 errors, 0 warnings, 0 for information, 1 allowed\n"));
}

// A process may call itself what it likes, and so names its network namespace; a chain's name takes
// any byte but space.
TEST(AuditTextTest, LetsNoNameReachTheTerminal) {
  NodeView view = ViewOf(SurveyOf("nft",
                                  "*nat\n:KUBE-MARK-MASQ - [0:0]\n:x\x1b[2J - [0:0]\n"
                                  "-A x\x1b[2J -j KUBE-MARK-MASQ\n"
                                  "-A KUBE-MARK-MASQ -j x\x1b[2J\nCOMMIT\n"));
  view.name = "pid 1 (\x1b[2J)";
  view.problems = {"nft tables: \x1b[2J"};
  const std::string text = AuditText(Audit(view, AuditOptions()));
  EXPECT_THAT(text, AllOf(HasSubstr("[pid 1 (\\x1b[2J)]"), Not(HasSubstr("\x1b"))));
  const std::string dot = AuditDot(view, Audit(view, AuditOptions()));
  EXPECT_THAT(dot, AllOf(HasSubstr("x\\\\x1b[2J\" -> "), Not(HasSubstr("\x1b"))));
  for (const std::string chain : {"KUBE-MARK-MASQ", "x\x1b[2J"}) {
    const auto explanation = Explain(view.surveys[0], netlink::Family::kIPv4, chain);
    ASSERT_TRUE(explanation.ok());
    EXPECT_THAT(ExplainText(*explanation), AllOf(HasSubstr("\\x1b[2J"), Not(HasSubstr("\x1b"))));
  }
}

TEST(AuditJsonTest, HasEveryFindingWithItsParts) {
  const AuditReport report = Audit(HandWritten(), AuditOptions());
  const nlohmann::json json = nlohmann::json::parse(AuditJson(report));
  ASSERT_EQ(json["findings"].size(), report.findings.size());
  const nlohmann::json& first = json["findings"][0];
  EXPECT_EQ(first["id"], "ChainUser");
  EXPECT_EQ(first["severity"], "error");
  EXPECT_EQ(first["chain"], "nat/KUBE-MARK-DROP");
  EXPECT_EQ(first["family"], "ip");
  EXPECT_EQ(first["owner"], "unknown");
  EXPECT_EQ(first["packets"], 0);
  EXPECT_EQ(first["rules"][0]["chain"], "OFFICE-MASQ");
  EXPECT_EQ(first["allowed"], false);
  EXPECT_EQ(json["errors"], 2);
  EXPECT_EQ(json["kubeProxy"][0]["mode"], "iptables");
  EXPECT_EQ(json["kubeProxy"][0]["oldestMinor"], 27);
  EXPECT_EQ(json["kubeProxy"][0]["newestMinor"], nullptr);
}

TEST(AuditDotTest, DrawsServicesAsOneNodeAndFindingsInRed) {
  const NodeView view = HandWritten();
  const std::string dot = AuditDot(view, Audit(view, AuditOptions()));
  EXPECT_THAT(dot, StartsWith("digraph "));
  EXPECT_THAT(dot, HasSubstr("label=\"KUBE-SEP-* (4)\""));
  EXPECT_THAT(dot, Not(HasSubstr("GNZBNJ2PO5MGZ6GT")));
  EXPECT_THAT(dot, ContainsRegex("KUBE-MARK-DROP\" \\[label=\"[^\"]*MarkDropEmpty\"[^]]*#d40000"));
  EXPECT_THAT(dot, ContainsRegex("OFFICE-MASQ\" -> \"nft ip nat/KUBE-MARK-MASQ\" \\[label=\"1 "
                                 "rule.n5 packets\", penwidth=2.5, color=\"#e07b00\""));
  EXPECT_THAT(dot, HasSubstr("by the mark"));
  // Chains that have nothing to do with kubelet's are left out.
  EXPECT_THAT(dot, Not(HasSubstr("KUBE-FORWARD")));
}

TEST(AuditDotTest, DrawsTheChainThatACniPluginWillMiss) {
  NodeView view;
  view.cni.references.push_back(
      {.file = "/etc/cni/\"net\"", .plugin = "portmap", .chain = "KUBE-MARK-MASQ"});
  AuditOptions options;
  options.mode = Mode::kCleanup;
  const std::string dot = AuditDot(view, Audit(view, options));
  EXPECT_THAT(dot,
              HasSubstr("\"nat/KUBE-MARK-MASQ\" [label=\"nat/KUBE-MARK-MASQ\\ndoes not exist\""));
  EXPECT_THAT(dot, HasSubstr("\"/etc/cni/\\\"net\\\"\" -> \"nat/KUBE-MARK-MASQ\""));
}

}  // namespace
}  // namespace kipt::agent
