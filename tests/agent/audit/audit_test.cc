// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/allow_list.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "agent/audit/mode_meetings.h"
#include "agent/audit/node_view.h"
#include "agent/policy/martians.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/surveyed.h"

namespace kipt::agent::audit_test {
namespace {

const AuditOptions kLegacy = {};
const AuditOptions kCleanup = {.mode = Mode::kCleanup};

// The kernel takes it at once; it has 20^13 paths.
TEST(AuditRulesetTest, WalksEachChainOnceHoweverManyPathsLeadToIt) {
  std::string chains, rules;
  for (int i = 0; i < 14; ++i) {
    absl::StrAppend(&chains, ":C", i, " - [0:0]\n");
    for (int port = 1; port <= 20 && i < 13; ++port) {
      absl::StrAppend(&rules, "-A C", i, " -p tcp --dport ", port, " -j C", i + 1, "\n");
    }
  }
  const std::string text = absl::StrCat(
      "*nat\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-MARK-MASQ - [0:0]\n", chains,
      "-A OUTPUT -j KUBE-MARK-MASQ\n-A POSTROUTING -j C0\n-A KUBE-MARK-MASQ -j MARK --set-xmark "
      "0x4000/0x4000\n",
      rules, "COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n", chains, "-A INPUT -j C0\n", rules,
      "COMMIT\n");
  const netlink::Survey survey = SurveyOf("nft", text);
  EXPECT_EQ(WhoDropsMartians(survey, /*lo_is_loopback=*/true), "");
  EXPECT_THAT(Audit(ViewOf(survey), kLegacy).findings, Not(IsEmpty()));
  EXPECT_THAT(Explain(survey, netlink::Family::kIPv4, "nat/KUBE-MARK-MASQ"), IsOk());
}

const netlink::TableId kInetOwn = {"inet", "own"};
const netlink::TableId kIp6Own = {"ip6", "own"};
const netlink::TableId kIpKubeProxy = {"ip", "kube-proxy"};
const netlink::TableId kIpNat = {"ip", "nat"};
const netlink::TableId kIpOwn = {"ip", "own"};

struct RulesetRow {
  std::string name;
  std::string file;
  std::vector<std::string> lines;
};

TEST(AuditRulesetTest, FindsThese) {
  const RulesetRow rows[] = {
      {"KubeProxy128HasNothingToFear", "rulesets/kube-proxy-1.28-A-v4.save",
       List("info KubeProxy", "info KubeProxyUsesMarkMasq nat/KUBE-MARK-MASQ")},
      {"KubeProxy124AloneFailsOpenAlready", "rulesets/kube-proxy-1.24-A-v4.save",
       List("error MarkDropEmpty nat/KUBE-MARK-DROP",
            "error KubeProxyUsesMarkDrop nat/KUBE-MARK-DROP", "info KubeProxy",
            "info KubeProxyUsesMarkMasq nat/KUBE-MARK-MASQ")},
      {"IpvsBefore125NeedsMarkDrop", "audited/ipvs-1.23-v4.save",
       List("error KubeProxyUsesMarkDrop nat/KUBE-MARK-DROP", "info KubeProxy",
            "info KubeProxyUsesMarkMasq nat/KUBE-MARK-MASQ")},
      {"IpvsSince125DoesNot", "audited/ipvs-1.28-v4.save",
       List("info KubeProxy", "info KubeProxyUsesMarkMasq nat/KUBE-MARK-MASQ")},
      {"PortmapWithoutKubeProxyBreaks", "audited/portmap-v4.save",
       List("error ChainUser nat/KUBE-MARK-MASQ")},
      {"HostPortsOfCrioBreakToo", "audited/host-ports-v4.save",
       List("error ChainUser nat/KUBE-MARK-MASQ")},
      {"AnAdministratorsRules", "audited/hand-written-v4.save",
       List("error ChainUser nat/KUBE-MARK-DROP", "error MarkDropEmpty nat/KUBE-MARK-DROP",
            "warning ForeignRule nat/KUBE-POSTROUTING", "warning ChainUser nat/KUBE-MARK-MASQ",
            "warning MarkBitTested", "warning MarkBitSet nat/KUBE-POSTROUTING", "info KubeProxy",
            "info KubeProxyUsesMarkMasq nat/KUBE-MARK-MASQ")},
      {"KpngsIptablesBackend", "audited/kpng-v4.save",
       List("error MarkDropEmpty nat/KUBE-MARK-DROP",
            "error KubeProxyUsesMarkDrop nat/KUBE-MARK-DROP", "info Kpng", "info KubeProxy")},
  };
  for (const RulesetRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(Lines(AuditFile(row.file)), row.lines);
  }
}

TEST(AuditTest, GivesConsequenceAndRemedyOfAFinding) {
  NodeView portmap = ViewOf(SurveyOf("nft", ReadTestdata("audited/portmap-v4.save")));
  portmap.surveys[0].tables[{"ip", "kube-proxy"}]["masquerading"] = {};
  const std::vector<std::string> portmaps = {
      "-A CNI-DN-1 -s 10.88.0.0/16 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"};
  // kube-proxy since 1.27 rewrites KUBE-FIREWALL without the rule for the mark.
  const netlink::Survey wiped =
      WithKubeProxy({"-A MINE -s 10.9.0.0/16 -j KUBE-MARK-DROP",
                     "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000"});
  const netlink::Survey no_service_drops =
      SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"),
               ReadTestdata("rulesets/kube-proxy-1.24-A-v6.save"));
  const auto nat = [](const std::vector<std::string>& chains,
                      const std::vector<std::string>& rules) {
    return Audit(ViewOf(SurveyOf("nft", NatText(chains, rules))), kLegacy);
  };
  const struct {
    const char* name;
    AuditReport report;
    AuditKind kind;
    std::vector<std::string> parts;
  } rows[] = {
      {"what a kube-proxy keeps works on", Audit(ViewOf(WithKubeProxy(portmaps)), kLegacy),
       AuditKind::kChainUser,
       List("warning ChainUser nat/KUBE-MARK-MASQ\n", "the CNI plugin portmap",
            "\nOnce IPTablesOwnershipCleanup is on", "still writes", "externalSetMarkChain")},
      {"one in nftables mode keeps none", Audit(portmap, kLegacy), AuditKind::kChainUser,
       List("error ChainUser")},
      {"and is seen", Audit(portmap, kLegacy), AuditKind::kKubeProxy, List("info KubeProxy")},
      {"the gate is on", AuditFile("audited/portmap-v4.save", kCleanup), AuditKind::kChainUser,
       List("\nIPTablesOwnershipCleanup is on: no program makes nat/KUBE-MARK-MASQ")},
      {"an empty MARK-MASQ that is used fails open",
       nat({"KUBE-MARK-MASQ", "MINE"}, {"-A MINE -j KUBE-MARK-MASQ"}), AuditKind::kMarkMasqEmpty,
       List("error MarkMasqEmpty nat/KUBE-MARK-MASQ")},
      {"an unused empty chain is information", nat({"KUBE-MARK-DROP"}, {}),
       AuditKind::kMarkDropEmpty, List("info MarkDropEmpty nat/KUBE-MARK-DROP")},
      {"a drop mark whose rule was wiped", Audit(ViewOf(wiped), kLegacy),
       AuditKind::kMarkDropUnheard,
       List("error ", "kube-proxy 1.27 and later empties filter/KUBE-FIREWALL")},
      {"a kube-proxy that may need MARK-DROP while no service does",
       Audit(ViewOf(no_service_drops), kLegacy), AuditKind::kKubeProxyUsesMarkDrop,
       List("warning KubeProxyUsesMarkDrop nat/KUBE-MARK-DROP")},
      {"one before 1.20 loses all services", AuditFile("rulesets/kube-proxy-1.17-A-v4.save"),
       AuditKind::kKubeProxyUsesMarkDrop, List("no service works")},
      {"a later one drops nothing", AuditFile("rulesets/kube-proxy-1.24-A-v4.save"),
       AuditKind::kKubeProxyUsesMarkDrop, List("the chain is empty")},
      {"kube-proxy's own use is one finding", AuditFile("rulesets/kube-proxy-1.28-A-v4.save"),
       AuditKind::kKubeProxyUsesMarkMasq, List(", 9: ")},
  };
  for (const auto& row : rows) {
    const std::string text = Described(row.report, row.kind);
    for (const std::string& part : row.parts) EXPECT_THAT(text, HasSubstr(part)) << row.name;
  }
}

TEST(AuditTest, ReportsWhetherPacketsHitARule) {
  const AuditReport report = AuditFile("audited/hand-written-v4.save");
  std::vector<std::optional<uint64_t>> packets;
  for (const AuditFinding& finding : report.findings) {
    if (finding.kind == AuditKind::kChainUser) packets.push_back(finding.packets);
  }
  EXPECT_THAT(packets, ElementsAre(0, 5));
  // No rule of this one was counted: not the same as none hit.
  EXPECT_EQ(AuditFile("audited/portmap-v4.save").findings[0].packets, std::nullopt);
}

TEST(AuditTest, ThousandsOfTheSameAreOneFinding) {
  std::vector<std::string> rules;
  for (int i = 0; i < 1000; ++i) {
    rules.push_back(absl::StrCat("-A CNI-DN-", i, " -s 10.88.0.0/16 -j KUBE-MARK-MASQ"));
  }
  const AuditReport report = Audit(ViewOf(WithKubeProxy(rules)), kLegacy);
  EXPECT_EQ(report.warnings, 1U);
  const AuditFinding* finding = FindKind(report, AuditKind::kChainUser);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->count, 1000U);
  EXPECT_THAT(finding->rules, SizeIs(3));
}

struct FutureRow {
  std::string name;
  std::string table;  // of the chain
  std::string chain;
  std::string rule;
  std::string line;
  netlink::Family family = netlink::Family::kIPv4;
};

TEST(AuditChainFutureTest, DecidesTheSeverity) {
  const FutureRow rows[] = {
      {"FirewallStaysOnIPv4", "filter", "KUBE-FIREWALL", "-j KUBE-FIREWALL",
       "warning ChainUser filter/KUBE-FIREWALL"},
      {"FirewallIsRemovedOnIPv6", "filter", "KUBE-FIREWALL", "-j KUBE-FIREWALL",
       "error ChainUser filter/KUBE-FIREWALL", netlink::Family::kIPv6},
      {"PostroutingIsRemoved", "nat", "KUBE-POSTROUTING", "-j KUBE-POSTROUTING",
       "error ChainUser nat/KUBE-POSTROUTING"},
      {"TheCanaryIsRemoved", "mangle", "KUBE-KUBELET-CANARY", "-j KUBE-KUBELET-CANARY",
       "error ChainUser mangle/KUBE-KUBELET-CANARY"},
      {"TheHintStays", "mangle", "KUBE-IPTABLES-HINT", "-j KUBE-IPTABLES-HINT",
       "warning ChainUser mangle/KUBE-IPTABLES-HINT"},
  };
  for (const FutureRow& row : rows) {
    SCOPED_TRACE(row.name);
    netlink::Survey survey;
    survey.mode = "nft";
    auto& chains = survey.tables[{std::string(netlink::FamilyName(row.family)), row.table}];
    chains[row.chain] = {};
    chains["MINE"].rules.push_back(Surveyed(row.rule, row.chain, row.family));
    EXPECT_THAT(Lines(Audit(ViewOf(survey), kLegacy)), Contains(row.line));
  }
}

TEST(AuditTest, AMarkThatNothingMasqueradesIsAnError) {
  const std::vector<std::string> rules = {
      "-A MINE -j KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
      "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
      "-A KUBE-POSTROUTING -j MASQUERADE"};
  std::vector<std::string> with_jump = rules;
  with_jump.emplace_back("-A POSTROUTING -j KUBE-POSTROUTING");
  const std::vector<std::string> chains = {"MINE", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"};
  const AuditReport unheard = Audit(ViewOf(SurveyOf("nft", NatText(chains, rules))), kLegacy);
  EXPECT_THAT(Lines(unheard), Contains("error MarkMasqUnheard nat/KUBE-MARK-MASQ"));
  EXPECT_THAT(FindKind(unheard, AuditKind::kMarkMasqUnheard)->message,
              HasSubstr("no jump from POSTROUTING"));
  EXPECT_EQ(FindKind(Audit(ViewOf(SurveyOf("nft", NatText(chains, with_jump))), kLegacy),
                     AuditKind::kMarkMasqUnheard),
            nullptr);
}

struct ActorRow {
  std::string name;
  netlink::TableId table;
  // Of a base chain there, and of a chain "acts" in that table.
  std::optional<uint32_t> hook;
  std::vector<std::string> base;
  std::vector<std::string> acts;
  // Whether a rule acts on the marks of KUBE-MARK-MASQ and KUBE-MARK-DROP.
  bool masquerades = false;
  bool drops = false;
  int32_t priority = 0;
};

constexpr uint32_t kPostroutingHook = 4;
constexpr uint32_t kInputHook = 1;
constexpr uint32_t kForwardHook = 2;
constexpr uint32_t kPreroutingHook = 0;
const char kMasqMark[] = "-m mark --mark 0x4000/0x4000";
const char kDropMarked[] = "-m mark --mark 0x8000/0x8000 -j DROP";
const char kNotMasqMark[] = "-m mark ! --mark 0x4000/0x4000";

TEST(WhatActsTest, IsFoundInEveryTable) {
  const ActorRow rows[] = {
      {"NoRule", kIpKubeProxy, kPostroutingHook, List(), List()},
      {"KubeProxySince136", kIpKubeProxy, kPostroutingHook, List("-j acts"),
       List(absl::StrCat(kMasqMark, " -j MASQUERADE --random-fully")), true},
      {"KubeProxyUpTo135", kIpKubeProxy, kPostroutingHook, List("-j acts"),
       List("-m mark --mark 0x0/0x4000 -j RETURN", "-j MARK --set-xmark 0x4000/0x0",
            "-j MASQUERADE --random-fully"),
       true},
      {"OfBothFamilies", kInetOwn, kPostroutingHook,
       List(absl::StrCat(kMasqMark, " -j MASQUERADE")), List(), true},
      {"OfTheOtherFamily", kIp6Own, kPostroutingHook,
       List(absl::StrCat(kMasqMark, " -j MASQUERADE")), List()},
      {"AnotherMark", kIpOwn, kPostroutingHook, List("-m mark --mark 0x1/0x1 -j MASQUERADE"),
       List()},
      {"WithoutTheMark", kIpOwn, kPostroutingHook,
       List(absl::StrCat(kNotMasqMark, " -j MASQUERADE")), List()},
      {"OtherPackets", kIpOwn, kPostroutingHook, List("-s 10.0.0.0/8 -j MASQUERADE"), List()},
      {"EveryPacket", kIpOwn, kPostroutingHook, List("-j MASQUERADE"), List(), true},
      {"EveryPacketThatWasNotAccepted", kInetOwn, kInputHook, List("-p udp -j ACCEPT", "-j DROP"),
       List()},
      {"EveryPacketThatWasLogged", kInetOwn, kInputHook, List("-p udp -j LOG", "-j DROP"), List(),
       false, true},
      {"EveryPacketWithAnotherMark", kIpOwn, kPostroutingHook,
       List("-m mark ! --mark 0x1/0x1 -j RETURN", "-j MASQUERADE"), List()},
      {"AfterAVerdict", kIpOwn, kPostroutingHook,
       List("-j ACCEPT", absl::StrCat(kMasqMark, " -j MASQUERADE")), List()},
      {"AfterAJumpThatAcceptsAll", kIpOwn, kPostroutingHook,
       List("-j acts", absl::StrCat(kMasqMark, " -j MASQUERADE")), List("-j ACCEPT")},
      {"NothingLeadsThere", kIpOwn, kPostroutingHook, List(absl::StrCat(kNotMasqMark, " -j acts")),
       List("-j MASQUERADE")},
      {"OnlyTheMarkLeadsThere", kIpOwn, kPostroutingHook, List(absl::StrCat(kMasqMark, " -j acts")),
       List("-s 10.0.0.0/8 -j MASQUERADE"), true},
      {"IptablesLegacy", kIpNat, std::nullopt, List(absl::StrCat(kMasqMark, " -j MASQUERADE")),
       List(), true},
      {"DropsInput", kInetOwn, kInputHook, List(kDropMarked), List(), false, true},
      {"DropsTheOtherMark", kInetOwn, kInputHook, List(absl::StrCat(kMasqMark, " -j DROP")),
       List()},
      {"DropsForwardedPackets", kInetOwn, kForwardHook, List(kDropMarked), List()},
      {"DropsBeforeTheMarkIsSet", kInetOwn, kPreroutingHook, List(kDropMarked), List(), false,
       false, -300},
      {"DropsAfterTheMarkIsSet", kInetOwn, kPreroutingHook, List(kDropMarked), List(), false, true,
       -90},
  };
  for (const ActorRow& row : rows) {
    SCOPED_TRACE(row.name);
    NodeView view =
        ViewOf(SurveyOf("nft", NatText({"MINE", "KUBE-MARK-MASQ", "KUBE-MARK-DROP"},
                                       {"-A MINE -j KUBE-MARK-MASQ", "-A MINE -j KUBE-MARK-DROP",
                                        "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
                                        "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000"})));
    // iptables-legacy does not report hooks.
    if (!row.hook) view.surveys.push_back(SurveyOf("legacy", ""));
    auto& chains = view.surveys.back().tables[row.table];
    netlink::SurveyChain& base = chains[row.hook ? "base" : "POSTROUTING"];
    base = {.base = true, .policy = "ACCEPT"};
    if (row.hook) base.hook = {.hook = *row.hook, .priority = row.priority};
    for (const std::string& rule : row.base) base.rules.push_back(Surveyed(rule, "acts"));
    for (const std::string& rule : row.acts) {
      chains["acts"].rules.push_back(Surveyed(rule, ""));
    }
    const AuditReport report = Audit(view, kLegacy);
    EXPECT_EQ(FindKind(report, AuditKind::kMarkMasqUnheard) == nullptr, row.masquerades);
    EXPECT_EQ(FindKind(report, AuditKind::kMarkDropUnheard) == nullptr, row.drops);
    for (const bool masquerades : {true, false}) {
      const auto explained =
          Explain(view.surveys[0], netlink::Family::kIPv4,
                  masquerades ? "nat/KUBE-MARK-MASQ" : "nat/KUBE-MARK-DROP", view.surveys);
      ASSERT_TRUE(explained.ok());
      EXPECT_EQ(!absl::StrContains(absl::StrJoin(explained->next, "|"), "no rule acts on the mark"),
                masquerades ? row.masquerades : row.drops)
          << absl::StrJoin(explained->next, "|");
    }
  }
}

struct LeftOverRow {
  std::string name;
  std::string family = {};
  std::string mode = "nft";          // of the leftovers
  std::string table = "kube-proxy";  // of nft; empty: none
};

// `kube-proxy --cleanup` deletes the tables of nftables mode, of both families.

TEST(AuditLeftOverTest, AdvisesCleanupOnlyWhereItDeletesNothingLive) {
  const LeftOverRow rows[] = {
      {"NoTable", {}, "nft", {}},       {"TheSameFamily", "ip"},
      {"TheOtherFamily", "ip6"},        {"LeftInLegacyTables", "ip", "legacy"},
      {"AnotherProgramsTable", "inet"},
  };
  for (const LeftOverRow& row : rows) {
    SCOPED_TRACE(row.name);
    NodeView view = ViewOf(SurveyOf(row.mode, NatText({"KUBE-MARK-MASQ", "KUBE-SVC-X"}, {})));
    if (row.mode == "legacy") view.surveys.insert(view.surveys.begin(), SurveyOf("nft", ""));
    if (!row.table.empty()) view.surveys[0].tables[{row.family, row.table}] = {};
    const AuditReport report = Audit(view, kLegacy);
    const AuditFinding* found = FindKind(report, AuditKind::kKubeProxyLeftOver);
    ASSERT_NE(found, nullptr);
    const std::string table = absl::StrCat("the table ", row.family, " ", row.table);
    const bool live = row.table == "kube-proxy" && row.family != "inet";
    EXPECT_EQ(absl::StrContains(found->remedy, "Do not run kube-proxy --cleanup"), live);
    EXPECT_EQ(absl::c_linear_search(found->details, table), live);
    EXPECT_EQ(absl::StrContains(found->remedy, "only run it where no kube-proxy runs"), !live);
  }
}

TEST(AuditTest, RulesThatMayTouchAnyMarkAreInformation) {
  netlink::Survey survey = SurveyOf("nft", "");
  const netlink::SurveyRule rule = Surveyed("-j CONNMARK --restore-mark", 0xffffffff, {});
  survey.tables[{"inet", "vpn"}]["pre"] = {.base = true, .policy = "", .rules = {rule}};
  const AuditReport report = Audit(ViewOf(survey), kLegacy);
  EXPECT_THAT(Lines(report), ElementsAre("info MarkBitSet nat/KUBE-POSTROUTING"));
  EXPECT_EQ(report.findings[0].family, "inet");
}

TEST(AuditTest, ABitToMasqueradeByThatKubeletDropsByIsAnErrorInEveryMode) {
  const struct {
    netlink::TableId table;
    const char* chain;
    netlink::SurveyRule rule;
    bool conflicts = true;
  } rows[] = {
      {{"ip", "nat"}, "KUBE-MARK-MASQ", Surveyed("-j MARK --set-xmark 0x8000/0x8000")},
      {{"ip", "nat"}, "KUBE-MARK-MASQ", Surveyed("-j MARK --set-xmark 0x4000/0x4000"), false},
      {{"ip", "nat"}, "KUBE-MARK-DROP", Surveyed("-j MARK --set-xmark 0x8000/0x8000"), false},
      {{"ip", "kube-proxy"}, "mark-for-masquerade", Surveyed("-j MARK --set-xmark 0x8000/0x8000")},
      {{"ip", "filter"}, "KUBE-FIREWALL", Surveyed("-m mark --mark 0x4000/0x4000 -j DROP")},
      {{"ip", "filter"}, "KUBE-FIREWALL", Surveyed("-m mark --mark 0x4000/0x4000 -j LOG"), false},
      {{"ip", "filter"}, "KUBE-FIREWALL", Surveyed(kDropMarked), false},
  };
  for (const auto& row : rows) {
    netlink::Survey survey = SurveyOf("legacy", "");
    survey.tables[row.table][row.chain].rules = {row.rule};
    const AuditReport report = Audit(ViewOf(survey), kLegacy);
    const AuditFinding* found = FindKind(report, AuditKind::kMarkBitSet);
    ASSERT_EQ(found != nullptr, row.conflicts) << row.chain << ToString(row.table, row.rule);
    if (found == nullptr) continue;
    EXPECT_EQ(Line(*found), "error MarkBitSet filter/KUBE-FIREWALL");
    EXPECT_EQ(found->mark_bits, row.table.name == "filter" ? 0x4000U : 0x8000U);
  }
}

TEST(AuditTest, MarksOfOtherBitsAreNotReported) {
  netlink::Survey survey = SurveyOf("nft", "");
  const netlink::SurveyRule rule =
      Surveyed("-j MARK --or-mark 0x10000", 0x10000, {}, /*marks_tested=*/0xff0000);
  survey.tables[{"ip", "mangle"}]["cali-x"].rules = {rule};
  EXPECT_THAT(Lines(Audit(ViewOf(survey), kLegacy)), IsEmpty());
  AuditOptions options;
  options.bits.masquerade = 16;
  EXPECT_THAT(
      Lines(Audit(ViewOf(survey), options)),
      UnorderedElementsAre("warning MarkBitTested", "error MarkBitSet nat/KUBE-POSTROUTING"));
}

TEST(AuditTest, AnEntryAllowsOnlyTheRulesThatItNames) {
  const netlink::Survey survey = WithKubeProxy(
      {"-A MINE -s 10.1.0.0/16 -j KUBE-MARK-MASQ", "-A MINE -s 10.2.0.0/16 -j KUBE-MARK-MASQ"});
  AuditOptions options;
  options.allow = *ParseAllowList("ChainUser * 10.1.0.0/16");
  const AuditReport report = Audit(ViewOf(survey), options);
  EXPECT_THAT(Lines(report), IsSupersetOf({"allowed ChainUser nat/KUBE-MARK-MASQ",
                                           "warning ChainUser nat/KUBE-MARK-MASQ"}));
  EXPECT_EQ(report.warnings, 1U);
  EXPECT_EQ(report.allowed, 1U);
}

// Table filter of IPv4, with what comes after its built-in chains.
std::string FilterText(const std::string& rules, const std::string& input_policy = "ACCEPT") {
  return absl::StrCat("*filter\n:INPUT ", input_policy,
                      " [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n", rules, "\nCOMMIT\n");
}
std::string MangleText(const std::string& chain) {
  return absl::StrCat("*mangle\n:PREROUTING ACCEPT [0:0]\n:", chain, " - [0:0]\nCOMMIT\n");
}

// "error TwoHints: mangle/KUBE-KUBELET-CANARY", one for each finding.
std::vector<std::string> Meetings(const std::string& nft, const std::string& legacy) {
  const std::vector<netlink::Survey> surveys = {SurveyOf("nft", nft), SurveyOf("legacy", legacy)};
  std::vector<std::string> lines;
  for (const AuditFinding& finding : FindModeMeetings(surveys)) {
    lines.push_back(absl::StrCat(Line(finding), ": ", absl::StrJoin(finding.details, ", ")));
  }
  return lines;
}

TEST(ModeMeetingsTest, AreWhatTwoIptablesModesDoToEachOther) {
  const std::string services = ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save");
  const std::string hint = MangleText("KUBE-IPTABLES-HINT");
  const std::string canary = MangleText("KUBE-KUBELET-CANARY");
  const std::string in_use = "info BothModesInUse: ";
  const std::string shadows = "warning ShadowedByOtherMode: legacy ";
  const std::string firewall = ", next to the jump to KUBE-FIREWALL in nft filter/";
  const struct {
    std::string name;
    std::string nft;
    std::string legacy;
    std::string meeting;  // empty: none
  } rows[] = {
      {"one mode alone meets nothing", services, "", ""},
      {"empty tables of the other mode are nothing", services, FilterText(""), ""},
      {"rules that do not meet are information", services,
       FilterText(":DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER"), in_use},
      {"two hints are an error", hint, hint, "error TwoHints: mangle/KUBE-IPTABLES-HINT"},
      // iptables-wrappers takes hint or canary, in nft first.
      {"a canary in nft next to legacy's hint is an error", canary, hint,
       "error TwoHints: mangle/KUBE-KUBELET-CANARY"},
      {"legacy's canary next to nft's hint is nothing", hint, canary, ""},
      {"an unused left-over of a live chain is a warning", services,
       NatText({"KUBE-MARK-MASQ"}, {"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"}),
       "warning SameChainInBothModes: nat/KUBE-MARK-MASQ"},
      {"a policy of DROP decides first", services, FilterText("-A INPUT -i lo -j ACCEPT", "DROP"),
       shadows + "filter/INPUT has the policy DROP" + firewall + "INPUT"},
      {"a drop of everything decides first", services, FilterText("-A OUTPUT -j DROP"),
       shadows + "filter/OUTPUT: -j DROP" + firewall + "OUTPUT"},
      {"a masquerade of everything decides first", services,
       NatText({}, {"-A POSTROUTING -j MASQUERADE"}),
       shadows + "nat/POSTROUTING: -j MASQUERADE, next to the jump to KUBE-POSTROUTING in nft "
                 "nat/POSTROUTING"},
      // It ends one hook; the other mode's hook still sees the packet.
      {"an accept of everything does not", services, FilterText("-A INPUT -j ACCEPT"), in_use},
      {"nor does one in nat", services, NatText({}, {"-A POSTROUTING -j ACCEPT"}), in_use},
      {"a drop of something does not", services, FilterText("-A INPUT -s 10.0.0.1/32 -j DROP"),
       in_use},
      {"a masquerade of something does not", services,
       NatText({}, {"-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE"}), in_use},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(absl::StrJoin(Meetings(row.nft, row.legacy), "\n"), row.meeting) << row.name;
  }
}

TEST(ModeMeetingsTest, TheSameServicesInBothModesAreAnError) {
  const std::vector<std::string> meetings =
      Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"),
               ReadTestdata("rulesets/kube-proxy-1.23-A-v4.save"));
  ASSERT_FALSE(meetings.empty());
  EXPECT_THAT(meetings[0],
              AllOf(StartsWith("error SameChainInBothModes: "), HasSubstr("nat/KUBE-SVC-*"),
                    HasSubstr("nat/KUBE-POSTROUTING"), Not(HasSubstr("KUBE-PROXY-CANARY"))))
      << "canaries are empty in both";
}

}  // namespace
}  // namespace kipt::agent::audit_test
