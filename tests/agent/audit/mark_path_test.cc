// SPDX-License-Identifier: Apache-2.0
//
// Which rules clear a mark of ours between the place that sets it and the one that acts on it.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "agent/audit/mark_map.h"
#include "agent/audit/node_view.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::mark_path_test {
namespace {

using netlink::Survey;

// What kubelet makes with the gate off, kube-proxy's jumps, and rules ("-A CHAIN ...", one a line)
// of table `place`, after the others or, of "nat-first", before them.
std::string NodeText(absl::string_view place = "mangle", absl::string_view rules = "") {
  const netlink::Family ipv4[] = {netlink::Family::kIPv4};
  std::string text = absl::StrReplaceAll(
      MadeText(Wanting(Mode::kLegacy, ipv4)),
      {{"*mangle\n", "*mangle\n:OTHER - [0:0]\n"}, {"*nat\n", "*nat\n:OTHER-NAT - [0:0]\n"}});
  text = WithRules(text + "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n", "nat",
                   {"-A PREROUTING -j KUBE-SERVICES", "-A OUTPUT -j KUBE-SERVICES",
                    "-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-MARK-MASQ",
                    "-A KUBE-SERVICES -d 10.96.0.2/32 -j KUBE-MARK-DROP"});
  if (rules.empty()) return text;
  const bool first = absl::ConsumeSuffix(&place, "-first");
  const size_t table = text.find(absl::StrCat("*", place, "\n"));
  text.insert(text.find(first ? "-A " : "COMMIT", table), absl::StrCat(rules, "\n"));
  return text;
}

// The same without kube-proxy, with a rule that sets the bit itself.
Survey MarksItself(absl::string_view place = "nat", absl::string_view rules = "") {
  Survey survey = SurveyOf("nft", NodeText(place, rules));
  auto& nat = survey.tables[{"ip", "nat"}];
  for (auto& [name, chain] : nat) {
    std::erase_if(chain.rules, [](const auto& rule) { return JumpOf(rule) == "KUBE-SERVICES"; });
  }
  nat.erase("KUBE-SERVICES");
  survey.tables[{"ip", "mangle"}]["PREROUTING"].rules = {
      Surveyed("-s 10.9.0.0/16 -j MARK --set-xmark 0x4000/0x4000")};
  return survey;
}

// "masquerade", "drop", "masquerade drop" or "": what packets lose by rules of others.
std::string Lost(const std::vector<Survey>& surveys, const AuditOptions& options = {}) {
  NodeView view;
  view.surveys = surveys;
  std::vector<std::string> lost;
  for (const AuditFinding& finding : Audit(view, options).findings) {
    if (finding.kind != AuditKind::kMarkBitCleared) continue;
    EXPECT_EQ(finding.severity, AuditSeverity::kError);
    lost.emplace_back(finding.chain == "nat/KUBE-POSTROUTING" ? "masquerade" : "drop");
  }
  return absl::StrJoin(lost, " ");
}

TEST(ClearedMarksTest, AreThoseThatPacketsLoseOnTheWay) {
  struct Row {
    const char* place;
    const char* rules;  // without "-A"; "*" writes a mark that has none of our bits
    const char* lost;
    const char* name = "";
  };
  constexpr Row kRows[] = {
      {"mangle", "", ""},
      // By hook and priority.
      {"mangle", "POSTROUTING -o eth1 *", "masquerade"},
      {"mangle", "FORWARD *", "masquerade"},
      {"mangle", "INPUT *", "drop"},
      {"mangle", "PREROUTING *", ""},
      {"mangle", "OUTPUT *", ""},
      {"raw", "PREROUTING *", ""},
      {"filter", "FORWARD *", "masquerade"},
      {"filter-first", "INPUT *", "drop"},
      {"filter", "INPUT *", "", "filter INPUT after it"},
      {"filter-first", "OUTPUT *", "masquerade drop"},
      {"filter", "OUTPUT *", "masquerade", "filter OUTPUT after it"},
      {"nat-first", "POSTROUTING *", "masquerade", "nat POSTROUTING before KUBE-POSTROUTING"},
      {"nat", "POSTROUTING *", "", "nat POSTROUTING after it"},
      {"nat", "PREROUTING *", "drop", "nat PREROUTING after a drop mark"},
      {"nat", "KUBE-MARK-MASQ -j CONNMARK --restore-mark", "masquerade",
       "the end of KUBE-MARK-MASQ"},
      {"nat-first", "KUBE-POSTROUTING -j MARK --and-mark 0xf", "masquerade",
       "the head of KUBE-POSTROUTING"},
      // By jumps.
      {"mangle", "POSTROUTING -o eth1 -j OTHER\nOTHER *", "masquerade",
       "a chain that POSTROUTING jumps to"},
      {"mangle", "POSTROUTING -g OTHER\nOTHER *", "masquerade", "a chain that POSTROUTING goes to"},
      {"mangle", "PREROUTING -j OTHER\nOTHER *", "", "a chain that PREROUTING jumps to"},
      {"mangle", "OTHER *", "", "a chain that nothing jumps to"},
      // By what the rule writes.
      {"mangle", "POSTROUTING -j MARK --set-xmark 0x0/0x4000", "masquerade"},
      {"mangle", "POSTROUTING -j MARK --set-xmark 0x4000/0x0", "masquerade", "one bit toggled"},
      {"mangle", "POSTROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
       "masquerade"},
      {"mangle", "POSTROUTING -j MARK --set-xmark 0x1/0xff", "", "a bit of its own"},
      {"mangle", "FORWARD -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", "",
       "a bit of its own, restored"},
      {"mangle", "POSTROUTING -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff", "",
       "saved"},
      {"mangle", "POSTROUTING -j MARK --set-xmark 0xc000/0xffffffff", "", "our bit set"},
      {"filter-first", "OUTPUT -p udp -m udp --dport 6081 -j MARK --set-xmark 0x0/0xffffffff", "",
       "outer packets of a tunnel"},
      {"filter-first", "OUTPUT -p udp -m udp --dport 60810 -j MARK --set-xmark 0x0/0xffffffff",
       "masquerade drop", "packets to another port"},
      // By what happens to the packets nevertheless.
      {"nat-first",
       "POSTROUTING -m mark --mark 0x4000/0x4000 -j OTHER-NAT\nOTHER-NAT -j MARK --set-xmark "
       "0x0/0xffffffff\nOTHER-NAT -j MASQUERADE",
       "", "masqueraded at once"},
      {"nat-first",
       "POSTROUTING -j OTHER-NAT\nOTHER-NAT -j MARK --set-xmark 0x0/0xffffffff\nOTHER-NAT -o eth1 "
       "-j MASQUERADE",
       "masquerade", "masqueraded only in part"},
      {"mangle", "INPUT -j OTHER\nOTHER -j MARK --set-xmark 0x0/0xffffffff\nOTHER -j DROP", "",
       "dropped at once"},
      // By what the rule tests.
      {"mangle", "POSTROUTING -m mark --mark 0x0 *", "", "only unmarked packets"},
      {"mangle", "POSTROUTING -m mark --mark 0x2/0xffff *", "", "only packets of another mark"},
      {"mangle", "POSTROUTING -m mark ! --mark 0x4000/0x4000 -j OTHER\nOTHER *", "",
       "only packets without the bit"},
      {"mangle", "POSTROUTING -m mark --mark 0x4000/0x4000 *", "masquerade",
       "only packets with the bit"},
      {"mangle", "POSTROUTING -m mark --mark 0x4000/0x4000 -j ACCEPT\nPOSTROUTING *", "",
       "after marked packets have left"},
      {"mangle", "POSTROUTING -o eth0 -m mark --mark 0x4000/0x4000 -j ACCEPT\nPOSTROUTING *",
       "masquerade", "after some of them have left"},
      {"mangle",
       "POSTROUTING -j OTHER\nPOSTROUTING *\nOTHER -m mark --mark 0x4000/0x4000 -j RETURN\nOTHER "
       "-j MARK --set-xmark 0x2/0xff00",
       "masquerade", "after they have returned to the caller"},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(absl::StrCat(row.place, " ", row.rules, " ", row.name));
    std::string rules = *row.rules == '\0' ? "" : absl::StrCat("-A ", row.rules);
    absl::StrReplaceAll({{"\n", "\n-A "}, {"*", "-j MARK --set-xmark 0x1/0xffffffff"}}, &rules);
    const std::string text = NodeText(row.place, rules);
    ASSERT_TRUE(absl::StrContains(text, rules));
    EXPECT_EQ(Lost({SurveyOf("nft", text)}), row.lost);
    // In the other iptables than Kubernetes'.
    if (absl::string_view(row.place) == "mangle") {
      EXPECT_EQ(Lost({SurveyOf("nft", NodeText()), SurveyOf("legacy", text)}), row.lost);
    }
    const Survey other_family = SurveyOf("nft", NodeText(), text);
    EXPECT_EQ(Lost({other_family}, {.families = {netlink::Family::kIPv4}}), row.lost);
  }
}

TEST(ClearedMarksTest, DropsMatterOnlyWhereTheMarkDrops) {
  const std::string clears = "-A INPUT -j MARK --set-xmark 0x1/0xffffffff";
  const Survey whole = SurveyOf("nft", NodeText("mangle", clears));
  EXPECT_EQ(Lost({whole}, {.mode = Mode::kCleanup}), "drop");
  Survey without = whole;
  without.tables[{"ip", "filter"}]["KUBE-FIREWALL"].rules.clear();
  EXPECT_EQ(Lost({without}, {.mode = Mode::kCleanup}), "");
  // kubelet or this agent makes the rule.
  EXPECT_EQ(Lost({without}), "drop");
  Survey forwards = SurveyOf("nft", NodeText("mangle", "-A FORWARD -j MARK --and-mark 0x7fff"));
  EXPECT_EQ(Lost({forwards}), "");
  forwards.tables[{"ip", "filter"}]["FORWARD"].rules = {
      Surveyed("-j KUBE-FIREWALL", "KUBE-FIREWALL")};
  EXPECT_EQ(Lost({forwards}), "drop");
}

TEST(ClearedMarksTest, ANodeWithoutKubernetesHasNothingToLose) {
  const std::string text =
      "*mangle\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MARK --set-xmark 0x1/0xffffffff\n"
      "COMMIT\n";
  EXPECT_EQ(Lost({SurveyOf("nft", text)}, {.mode = Mode::kCleanup}), "");
  NodeView pod = ViewOf(SurveyOf("nft", text));
  pod.name = "/run/netns/pod";
  EXPECT_EQ(FindKind(Audit(pod, {}), AuditKind::kMarkBitCleared), nullptr);
  EXPECT_EQ(Lost({SurveyOf("nft", text)}), "masquerade");
}

TEST(ClearedMarksTest, IpvsSendsPacketsFromInputToOutput) {
  for (const char* base : {"INPUT", "OUTPUT"}) {
    const std::string rules = absl::StrCat("-A ", base, " -j MARK --set-xmark 0x8001/0xffffffff");
    Survey survey = SurveyOf("nft", ReadTestdata("audited/ipvs-1.28-v4.save"));
    Survey mangle = SurveyOf("nft", NodeText("mangle", rules));
    survey.tables[{"ip", "mangle"}] = mangle.tables[{"ip", "mangle"}];
    EXPECT_EQ(Lost({survey}), "masquerade") << base;
    EXPECT_EQ(Lost({mangle}), "") << base;
  }
}

TEST(ClearedMarksTest, NativeTablesCountByHookAndPriority) {
  struct Row {
    const char* family;
    netlink::ChainHook hook;
    const char* lost = "";
  };
  // Hooks of enum nf_inet_hooks: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
  const Row rows[] = {
      {"ip", {.hook = 0, .priority = -150}},
      {"ip", {.hook = 0, .priority = -99}, "masquerade drop"},
      {"inet", {.hook = 1, .priority = -1}, "drop"},
      {"inet", {.hook = 1, .priority = 1}},
      {"inet", {.hook = 2, .priority = 300}, "masquerade"},
      {"ip", {.hook = 3, .priority = -100}},
      {"ip", {.hook = 3, .priority = -1}, "masquerade drop"},
      {"ip", {.hook = 3, .priority = 1}, "masquerade"},
      {"inet", {.hook = 4, .priority = 99}, "masquerade"},
      {"inet", {.hook = 4, .priority = 100, .nat = true}, "masquerade"},
      {"inet", {.hook = 4, .priority = 101}},
      {"inet", {.hook = 5, .priority = 0}},
      {"ip6", {.hook = 4, .priority = 0}},
      {"bridge", {.hook = 4, .priority = 0}},
  };
  for (const Row& row : rows) {
    Survey survey = SurveyOf("nft", NodeText());
    auto& chains = survey.tables[{row.family, "vpn"}];
    chains["hooked"] = {.base = true, .rules = {Surveyed("-j own", "own")}, .hook = row.hook};
    chains["own"].rules = {Surveyed("-j MARK --set-xmark 0x1/0xffffffff")};
    EXPECT_EQ(Lost({survey}, {.families = {netlink::Family::kIPv4}}), row.lost)
        << row.family << " " << row.hook.hook << " " << row.hook.priority;
  }
}

TEST(ClearedMarksTest, NothingOnASoundNodeClearsThem) {
  size_t rulesets = 0;
  const std::string skew = "/../../skew/kube_proxy/testdata";
  for (const std::string& room :
       {std::string("/rulesets"), std::string("/audited"), std::string("/owners"), skew}) {
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(absl::StrCat(KIPT_TESTDATA_DIR, room))) {
      if (file.path().extension() != ".save") continue;
      const std::string text = FileText(file.path());
      ++rulesets;
      for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
        EXPECT_EQ(Lost({SurveyOf("nft", text, text)}, {.mode = mode}), "") << file.path();
      }
    }
  }
  EXPECT_GT(rulesets, 50U);
}

TEST(ClearedMarksTest, AreNeverAFreeBit) {
  const auto text = [](const char* rule) {
    return MarkMapText(MapMarks(ViewOf(SurveyOf("nft", NodeText("mangle", rule))), {}));
  };
  EXPECT_THAT(text("-A POSTROUTING -j MARK --set-xmark 0x1/0xffffffff"),
              AllOf(HasSubstr("masquerade: error"), HasSubstr("MarkBitCleared"),
                    HasSubstr("drop: no other program sets or tests it. Cleared only")));
  EXPECT_THAT(text("-A PREROUTING -j MARK --set-xmark 0x1/0xffffffff"),
              AllOf(Not(HasSubstr("no other program uses it")), Not(HasSubstr("error")),
                    HasSubstr("nft ip mangle: rules of others")));
  EXPECT_THAT(text("-A POSTROUTING -j MARK --set-xmark 0x1/0xff"),
              HasSubstr("masquerade: no other program uses it"));
}

TEST(SharedMarksTest, WhoActsOnItsOwnMarkSharesTheBit) {
  struct Row {
    const char* name;
    const char* rules;
    const char* severity = "error";
    const char* place = "nat";
  };
  const Row rows[] = {
      {"nothing acts", "", "error"},
      {"in one rule", "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE", "warning"},
      {"by SNAT",
       "-A POSTROUTING -o eth0 -m mark --mark 0x4000/0x4000 -j SNAT --to-source 192.0.2.1",
       "warning"},
      {"after a test that returns",
       "-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A POSTROUTING -j MASQUERADE",
       "warning"},
      {"without the mark", "-A POSTROUTING -o eth0 -j MASQUERADE"},
      {"by another mark", "-A POSTROUTING -m mark --mark 0x2000/0x2000 -j MASQUERADE"},
  };
  for (const Row& row : rows) {
    const AuditReport report = Audit(ViewOf(MarksItself(row.place, row.rules)), {});
    const AuditFinding* finding = FindKind(report, AuditKind::kMarkBitSet);
    ASSERT_NE(finding, nullptr) << row.name;
    EXPECT_EQ(AuditSeverityName(finding->severity), row.severity) << row.name;
  }
}

TEST(SharedMarksTest, ReportsAMarkThatNoRuleActsOn) {
  Survey survey = MarksItself();
  EXPECT_THAT(FindKind(Audit(ViewOf(survey), {}), AuditKind::kMarkBitSet)->consequence,
              HasSubstr("after the next reboot or flush"));
  survey.tables[{"ip", "nat"}].erase("KUBE-POSTROUTING");
  EXPECT_THAT(FindKind(Audit(ViewOf(survey), {}), AuditKind::kMarkBitSet)->consequence,
              HasSubstr("No rule acts on this bit now"));
}

// Nothing in Kubernetes uses it since 1.28.
TEST(SharedMarksTest, ReportsTheDropBitOnlyWhereSomethingMayActOnIt) {
  Survey survey = SurveyOf("nft",
                           "*mangle\n:PREROUTING ACCEPT [0:0]\n"
                           "-A PREROUTING -i eth1 -j MARK --set-xmark 0x8000/0x8000\nCOMMIT\n");
  const auto found = [&](Mode mode) {
    AuditOptions options;
    options.mode = mode;
    const AuditReport report = Audit(ViewOf(survey), options);
    return FindKind(report, AuditKind::kMarkBitSet) != nullptr;
  };
  EXPECT_FALSE(found(Mode::kCleanup));
  EXPECT_TRUE(found(Mode::kLegacy)) << "kubelet makes what drops";
  survey.tables[{"ip", "nat"}]["KUBE-MARK-DROP"] = {};
  EXPECT_TRUE(found(Mode::kCleanup)) << "left over";
}

}  // namespace
}  // namespace kipt::agent::mark_path_test
