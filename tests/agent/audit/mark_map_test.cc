// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mark_map.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"
#include "tests/support/unescaped.h"

namespace kipt::agent::mark_map_test {
namespace {

using ::kipt::testing::FindUnescaped;

constexpr uint32_t kAll = netlink::kAllMarks;

// kubelet's chains of legacy mode in IPv4, with bits 14 and 15.
NodeView Kubelet() {
  const netlink::Family ipv4[] = {netlink::Family::kIPv4};
  return ViewOf(SurveyOf("nft", MadeText(Wanting(Mode::kLegacy, ipv4))));
}
DeviceMark Wireguard(uint32_t mark) {
  return {.place = "the WireGuard interface wg0",
          .text = "fwmark 0x" + std::string(absl::StrCat(absl::Hex(mark))),
          .marks = {.set = mark, .cleared = ~mark}};
}
MarkMap MapOf(const NodeView& view, Mode mode = Mode::kLegacy) {
  return MapMarks(view, {.mode = mode, .allow = {}});
}
std::vector<std::string> LinesOf(const std::string& text) { return absl::StrSplit(text, '\n'); }
std::string LineWith(const std::string& text, const std::string& part) {
  for (const std::string& line : LinesOf(text)) {
    if (absl::StrContains(line, part)) return line;
  }
  return "";
}

TEST(KnownMarksTest, AreAFileThatOthersCanRead) {
  const std::string text = FileText(KIPT_KNOWN_MARKS_CSV);
  const auto parsed = ParseKnownMarks(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, KnownMarks());
  EXPECT_GE(KnownMarks().size(), 31U);
  // No quotes and no escapes are needed.
  EXPECT_EQ(text.find_first_of("\"\r\t\\@"), std::string::npos);
  std::set<std::string> names;
  for (const KnownMark& known : KnownMarks()) {
    SCOPED_TRACE(known.software + ": " + known.use);
    EXPECT_TRUE(names.insert(known.software + known.use).second);
    EXPECT_NE(known.bits, 0U);
    EXPECT_THAT(known.source, StartsWith("https://"));
    EXPECT_FALSE(known.software.empty() || known.use.empty());
  }
}

TEST(KnownMarksTest, ALineThatIsWrongIsNamed) {
  EXPECT_THAT(ParseKnownMarks(""), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ParseKnownMarks("# a comment\n\nheading\na,b,0x1,0x3,https://c"),
              IsOkAndHolds(SizeIs(1)));
  for (const std::string line : {"a,b,0x1,0x3", "a,b,0x1,0x3,c,d", "a,b,x,0x3,c", "a,b,0x1,y,c",
                                 "a,b,0x4,0x3,c", "a,b,0x100000000,0x3,c"}) {
    EXPECT_THAT(ParseKnownMarks("heading\n" + line),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line 2: ")));
  }
}

TEST(MarkMapTest, HasWhoSetsTestsAndClearsEachBit) {
  NodeView view = Kubelet();
  view.ip_rules = {{.mark = 0x100, .mask = 0x300, .text = "100: from all fwmark 0x100/0x300"}};
  view.device_marks = {Wireguard(0x1001)};
  const std::string text = MarkMapText(MapOf(view));
  const std::pair<const char*, const char*> rows[] = {
      {"nft ip nat: kubelet", " .... .... .... .... sW.. .... .... ...."},
      {"nft ip filter: kubelet", " .... .... .... .... t... .... .... ...."},
      {"ip rule (IPv4)", " .... .... .... .... .... ..tt .... ...."},
      {"the WireGuard interface wg0, whole", " cccc cccc cccc cccc cccs cccc cccc cccs"},
      {"configured for", " .... .... .... .... dm.. .... .... ...."},
      {"wg-quick", " .... .... .... .... ##.. #.#. .##. ##.."}};
  for (const auto& [who, bits] : rows) EXPECT_THAT(LineWith(text, who), HasSubstr(bits)) << text;
}

TEST(MarkMapTest, WhatMaySetAnyBitIsNotTakenForOneThatSetsAll) {
  NodeView view;
  view.device_marks = {{.place = "a tc filter of eth0 ingress",
                        .text = "pref 1 bpf x",
                        .marks = {.tested = kAll, .set = kAll}},
                       {.place = "all", .text = "skbedit mark 0xffffffff", .marks = {.set = kAll}}};
  const MarkMap map = MapOf(view);
  ASSERT_THAT(map.users, SizeIs(2));
  EXPECT_TRUE(map.users[0].may_set_any);
  EXPECT_FALSE(map.users[0].overwrites);
  EXPECT_TRUE(map.users[1].overwrites);
  EXPECT_THAT(LineWith(MarkMapText(map), "tc filter of eth0"), HasSubstr(" ???? ????"));
}

TEST(MarkMapTest, RulesOfOneOwnerInOneTableAreOneRow) {
  std::vector<std::string> rules;
  for (int i = 0; i < 500; ++i) {
    rules.push_back("-A MINE -s 10.0.0.1 -m mark --mark 0x1/0x1 -j RETURN");
  }
  const MarkMap map = MapOf(ViewOf(SurveyOf("legacy", NatText({"MINE"}, rules))));
  ASSERT_THAT(map.users, SizeIs(1));
  EXPECT_EQ(map.users[0].who, "legacy ip nat: rules of others");
  EXPECT_EQ(map.users[0].count, 500U);
  EXPECT_THAT(map.users[0].examples, SizeIs(kMostExamples));
}

TEST(MarkMapTest, WireguardsDefaultMarkIsDroppedByKubeFirewall) {
  NodeView view = Kubelet();
  view.device_marks = {Wireguard(0xca6c)};
  const MarkMap map = MapOf(view);
  ASSERT_THAT(map.verdicts, SizeIs(2));
  const MarkVerdict& drop = map.verdicts[1];
  EXPECT_EQ(drop.bit, 15);
  EXPECT_EQ(drop.severity, AuditSeverity::kError);
  ASSERT_THAT(drop.findings, SizeIs(1));
  EXPECT_EQ(drop.findings[0].message,
            "the WireGuard interface wg0 marks 0xca6c: KUBE-FIREWALL drops it");
  EXPECT_TRUE(MarksNeedAttention(map));
  EXPECT_THAT(MarkMapText(map), HasSubstr("bit 15 (0x00008000), drop: error"));
  // Audit reports it too, because its exit code depends on it.
  const AuditReport report = Audit(view, {});
  const AuditFinding* finding = FindKind(report, AuditKind::kDeviceMark);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(Line(*finding), "error DeviceMark filter/KUBE-FIREWALL");
  EXPECT_EQ(finding->family, "ip");
  EXPECT_THAT(finding->details, ElementsAre("fwmark 0xca6c"));
}

struct DeviceRow {
  std::string name;
  DeviceMark device;
  bool kubelet = true;
  Mode mode = Mode::kLegacy;
  std::vector<std::string> lines;
};

TEST(MarkMapTest, WhatKubeletsChainsDoToAMarkDecides) {
  const std::string drop = "error DeviceMark filter/KUBE-FIREWALL";
  const std::string masquerade = "warning DeviceMark nat/KUBE-POSTROUTING";
  const std::string warning = "warning DeviceMark";
  const std::string info = "info DeviceMark";
  DeviceMark ipv6 = Wireguard(0x8000);
  ipv6.ipv4 = false;
  DeviceMark leaving = Wireguard(0xc000);
  leaving.egress = true;
  // It leaves bit 15 unchanged.
  const DeviceMark partly = {.place = "tc", .text = "x", .marks = {.set = 0x4000, .cleared = 0x1}};
  const DeviceMark any = {.place = "tc", .text = "x", .marks = {.tested = kAll, .set = kAll}};
  const DeviceMark tests = {
      .place = "tc", .text = "x", .marks = {.tested = kAll}, .carried = 0x8000};
  const DeviceMark tests_none = {.place = "tc", .text = "x", .marks = {.tested = 0xc000}};
  const DeviceRow rows[] = {
      {"both bits", Wireguard(0xca6c), true, Mode::kLegacy, {drop}},
      {"the masquerade bit alone", Wireguard(0x4001), true, Mode::kLegacy, {masquerade}},
      {"neither", Wireguard(0x3f0), true, Mode::kLegacy, {}},
      {"a family without the rule", ipv6, true, Mode::kLegacy, {warning}},
      {"no chains yet", Wireguard(0xca6c), false, Mode::kLegacy, {warning}},
      {"no chains ever", Wireguard(0xca6c), false, Mode::kCleanup, {info}},
      {"the chains are left over", Wireguard(0xca6c), true, Mode::kCleanup, {drop}},
      {"packets that have passed the chains", leaving, true, Mode::kLegacy, {info}},
      {"an action that writes other bits", partly, true, Mode::kLegacy, {masquerade}},
      {"anything", any, true, Mode::kLegacy, {info}},
      {"a filter for our bit", tests, true, Mode::kLegacy, {warning}},
      {"a filter for its absence", tests_none, true, Mode::kLegacy, {info}},
  };
  for (const DeviceRow& row : rows) {
    SCOPED_TRACE(row.name);
    NodeView view = row.kubelet ? Kubelet() : NodeView();
    // What the device alone adds.
    const AuditReport before = Audit(view, {.mode = row.mode, .allow = {}});
    view.device_marks = {row.device};
    if (!row.kubelet) view.surveys.push_back(SurveyOf("nft", NatText({}, {})));
    std::vector<std::string> lines;
    for (const AuditFinding& finding : Audit(view, {.mode = row.mode, .allow = {}}).findings) {
      if (finding.kind == AuditKind::kDeviceMark) lines.push_back(Line(finding));
    }
    EXPECT_EQ(lines, row.lines);
  }
}

TEST(MarkMapTest, FiltersOfOnePlaceAreJudgedEachForItself) {
  const auto verdicts = [](const std::vector<DeviceMark>& devices) {
    NodeView view = Kubelet();
    view.device_marks = devices;
    return MapOf(view).verdicts;
  };
  const auto tests =
      verdicts({{.place = "tc", .text = "absence", .marks = {.tested = 0xc000}},
                {.place = "tc", .text = "bit", .marks = {.tested = 0x8000}, .carried = 0x8000}});
  EXPECT_EQ(tests[1].severity, AuditSeverity::kWarning);
  const auto sets =
      verdicts({{.place = "tc", .text = "drop", .marks = {.set = 0x8000}, .egress = true},
                {.place = "tc", .text = "masquerade", .marks = {.set = 0x4000}, .egress = true}});
  EXPECT_THAT(sets[0].findings, SizeIs(1));
  EXPECT_THAT(sets[1].findings, SizeIs(1));
}

TEST(MarkMapTest, ARuleThatNoPacketReachesOrThatTestsMoreDropsNothing) {
  const auto lines = [](const std::string& filter) {
    NodeView view = ViewOf(SurveyOf("nft", filter));
    view.device_marks = {Wireguard(0x8000)};
    return Lines(Audit(view, {.mode = Mode::kCleanup, .allow = {}}));
  };
  const std::string chains =
      "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n";
  const std::string rule = "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n";
  const std::string narrow =
      "-A KUBE-FIREWALL -s 10.0.0.1/32 -m mark --mark 0x8000/0x8000 -j DROP\n";
  const std::string jump = "-A OUTPUT -j KUBE-FIREWALL\n";
  EXPECT_THAT(lines(chains + jump + rule + "COMMIT\n"),
              Contains("error DeviceMark filter/KUBE-FIREWALL"));
  EXPECT_THAT(lines(chains + rule + "COMMIT\n"), Contains("info DeviceMark"));
  EXPECT_THAT(lines(chains + jump + narrow + "COMMIT\n"), Contains("info DeviceMark"));
}

TEST(MarkMapTest, AFreeBitIsCalledSoAndNeedsNoAttention) {
  const MarkMap map = MapOf(Kubelet());
  EXPECT_FALSE(MarksNeedAttention(map));
  EXPECT_THAT(MarkMapText(map), HasSubstr("masquerade: no other program uses it"));
  NodeView unread = Kubelet();
  unread.problems = {"tc: refused"};
  EXPECT_TRUE(MarksNeedAttention(MapOf(unread)));
  EXPECT_THAT(MarkMapText(MapOf(unread)), HasSubstr("not seen: tc: refused"));
  EXPECT_THAT(MarkMapText(MapOf(unread)), HasSubstr("masquerade: no other use seen, but"));
  const NodeView routed = {.ip_rules = {{.mark = 0x8000, .mask = 0x8000, .text = "t"}}};
  EXPECT_THAT(MarkMapText(MapMarks(routed, {.mode = Mode::kCleanup})),
              HasSubstr("drop: no conflict found. Others use it, too: ip rule (IPv4)"));
}

NodeView Hostile() {
  NodeView view = Kubelet();
  const std::string evil = "E\x1b[2J\xe2\x80\xae<script>&\"'\n\xff";
  auto& chains = view.surveys[0].tables[{"inet", evil + std::string(200, 'x')}];
  chains[evil].rules.push_back({netlink::ObservedRule{
      .content = netlink::OpaqueRule{.text = evil, .marks = {.set = 0xc000}}}});
  view.device_marks = {{.place = "the WireGuard interface " + evil,
                        .text = evil,
                        .marks = {.set = 0xca6c, .cleared = ~uint32_t{0xca6c}}}};
  view.ip_rules = {{.mark = 0x8000, .mask = 0x8000, .text = "1: from all fwmark iif " + evil}};
  view.problems = {evil};
  return view;
}

TEST(MarkMapTest, TheTextFitsEightyColumns) {
  const std::string text = MarkMapText(MapOf(Hostile()));
  EXPECT_EQ(FindUnescaped(text), "") << text;
  const std::vector<std::string> lines = LinesOf(text);
  for (const std::string& line : lines) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    });
    const size_t words = line.find_first_not_of(' ');
    // A long word is not cut.
    if (words == std::string::npos || !absl::StrContains(line.substr(words), ' ')) continue;
    EXPECT_LE(columns, 80) << line;
  }
  EXPECT_THAT(lines[0], HasSubstr(" 3322 2222 2222 1111 1111 11"));
  EXPECT_THAT(lines[1], HasSubstr(" 1098 7654 3210 9876 5432 1098 7654 3210"));
}

TEST(MarkMapTest, ThePictureIsXmlWhateverTheNames) {
  const std::string svg = MarkMapSvg(MapOf(Hostile()));
  EXPECT_EQ(FindUnescaped(svg), "");
  EXPECT_THAT(
      svg, AllOf(StartsWith("<svg "), HasSubstr("&lt;script&gt;&amp;"), Not(HasSubstr("<script"))));
  // A long name ends before the grid.
  EXPECT_THAT(svg, HasSubstr("xxx...</text>"));
  // Every line of a verdict is in it, with the reason and the remedy.
  const std::string text = MarkMapText(MapOf(Hostile()));
  for (const std::string& line : LinesOf(text.substr(text.find("\nbit ")))) {
    EXPECT_THAT(svg, HasSubstr(absl::StrReplaceAll(
                         line, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}})));
  }
  // Every element is closed.
  EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>'));
}

TEST(MarkMapTest, JsonHasEveryBit) {
  NodeView view = Kubelet();
  view.device_marks = {Wireguard(0xca6c)};
  const auto json = nlohmann::json::parse(MarkMapJson(MapOf(view)));
  ASSERT_EQ(json["bits"].size(), 32U);
  EXPECT_EQ(json["bits"][15]["configuredFor"], "drop");
  EXPECT_EQ(json["bits"][14]["configuredFor"], "masquerade");
  EXPECT_EQ(json["bits"][13]["configuredFor"], nullptr);
  EXPECT_THAT(json["bits"][15]["sets"], Contains("the WireGuard interface wg0"));
  EXPECT_THAT(json["bits"][15]["knownSoftware"], Contains("wg-quick: tunnel (table 51820)"));
  EXPECT_THAT(json["bits"][0]["clears"], Contains("the WireGuard interface wg0"));
  EXPECT_EQ(json["verdicts"][1]["severity"], "error");
  EXPECT_EQ(json["knownSoftware"].size(), KnownMarks().size());
  EXPECT_EQ(FindUnescaped(MarkMapJson(MapOf(Hostile()))), "");
}

}  // namespace
}  // namespace kipt::agent::mark_map_test
