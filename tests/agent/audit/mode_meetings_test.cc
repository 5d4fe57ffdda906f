// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mode_meetings.h"

#include <string>
#include <vector>

#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "agent/audit/node_view.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

std::vector<AuditFinding> Meetings(const std::string& nft, const std::string& legacy) {
  const std::vector<netlink::Survey> surveys = {SurveyOf("nft", nft), SurveyOf("legacy", legacy)};
  return FindModeMeetings(surveys);
}

// Table filter of IPv4, with user chains.
std::string FilterText(const std::vector<std::string>& chains,
                       const std::vector<std::string>& rules,
                       const std::string& input_policy = "ACCEPT") {
  std::string text = absl::StrCat("*filter\n:INPUT ", input_policy,
                                  " [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
  for (const std::string& chain : chains) absl::StrAppend(&text, ":", chain, " - [0:0]\n");
  for (const std::string& rule : rules) absl::StrAppend(&text, rule, "\n");
  return text + "COMMIT\n";
}

const char* const kHintText =
    "*mangle\n:PREROUTING ACCEPT [0:0]\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";

TEST(MixedModesTest, OneModeAloneMeetsNobody) {
  EXPECT_THAT(Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"), ""), IsEmpty());
  EXPECT_THAT(FindModeMeetings({}), IsEmpty());
}

TEST(MixedModesTest, EmptyTablesOfTheOtherModeAreNothing) {
  EXPECT_THAT(Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"), FilterText({}, {})),
              IsEmpty());
}

TEST(MixedModesTest, RulesThatDoNotMeetAreInformation) {
  const std::vector<AuditFinding> meetings =
      Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"),
               FilterText({"DOCKER-USER"}, {"-A FORWARD -j DOCKER-USER"}));
  ASSERT_THAT(meetings, SizeIs(1));
  EXPECT_EQ(meetings[0].kind, AuditKind::kBothModesInUse);
  EXPECT_EQ(meetings[0].severity, AuditSeverity::kInfo);
}

TEST(MixedModesTest, TwoHintsAreAnError) {
  const std::vector<AuditFinding> meetings = Meetings(kHintText, kHintText);
  ASSERT_THAT(meetings, SizeIs(1));
  EXPECT_EQ(meetings[0].kind, AuditKind::kTwoHints);
  EXPECT_EQ(meetings[0].severity, AuditSeverity::kError);
}

// iptables-wrappers takes hint or canary, in nft first.
TEST(MixedModesTest, ACanaryInNftBesideLegacysHintIsAnError) {
  constexpr char kCanaryText[] = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
  const std::vector<AuditFinding> meetings = Meetings(kCanaryText, kHintText);
  ASSERT_THAT(meetings, SizeIs(1));
  EXPECT_EQ(meetings[0].kind, AuditKind::kTwoHints);
  EXPECT_EQ(meetings[0].severity, AuditSeverity::kError);
  EXPECT_THAT(meetings[0].details, ElementsAre("mangle/KUBE-KUBELET-CANARY"));
  EXPECT_THAT(Meetings(kHintText, kCanaryText), IsEmpty());
}

TEST(MixedModesTest, TheSameServicesInBothModesAreAnError) {
  const std::vector<AuditFinding> meetings =
      Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"),
               ReadTestdata("rulesets/kube-proxy-1.23-A-v4-legacy.save"));
  ASSERT_FALSE(meetings.empty());
  EXPECT_EQ(meetings[0].kind, AuditKind::kSameChainInBothModes);
  EXPECT_EQ(meetings[0].severity, AuditSeverity::kError);
  EXPECT_THAT(meetings[0].details, Contains("nat/KUBE-SVC-*"));
  EXPECT_THAT(meetings[0].details, Contains("nat/KUBE-POSTROUTING"));
  // Canaries are empty in both.
  EXPECT_THAT(meetings[0].details, Not(Contains("nat/KUBE-PROXY-CANARY")));
}

TEST(MixedModesTest, AnUnusedLeftOverOfALiveChainIsAWarning) {
  const std::vector<AuditFinding> meetings = Meetings(
      ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"),
      NatText({"KUBE-MARK-MASQ"}, {"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"}));
  ASSERT_THAT(meetings, SizeIs(1));
  EXPECT_EQ(meetings[0].kind, AuditKind::kSameChainInBothModes);
  EXPECT_EQ(meetings[0].severity, AuditSeverity::kWarning);
  EXPECT_THAT(meetings[0].details, ElementsAre("nat/KUBE-MARK-MASQ"));
}

struct ShadowRow {
  std::string name;
  std::string legacy;
  bool shadows = false;
};

TEST(ShadowedByOtherModeTest, IsWhatDecidesForTheOtherMode) {
  const ShadowRow rows[] = {
      {"APolicyOfDrop", FilterText({}, {"-A INPUT -i lo -j ACCEPT"}, "DROP"), true},
      {"ADropOfEverything", FilterText({}, {"-A OUTPUT -j DROP"}), true},
      {"AMasqueradeOfEverything", NatText({}, {"-A POSTROUTING -j MASQUERADE"}), true},
      // It ends one hook, and the other mode's still comes.
      {"AnAcceptOfEverythingDoesNot", FilterText({}, {"-A INPUT -j ACCEPT"})},
      {"ADropOfSomethingDoesNot", FilterText({}, {"-A INPUT -s 10.0.0.1/32 -j DROP"})},
      {"AMasqueradeOfSomethingDoesNot",
       NatText({}, {"-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE"})},
  };
  for (const ShadowRow& row : rows) {
    SCOPED_TRACE(row.name);
    const std::vector<AuditFinding> meetings =
        Meetings(ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"), row.legacy);
    ASSERT_THAT(meetings, SizeIs(1));
    EXPECT_EQ(meetings[0].kind,
              row.shadows ? AuditKind::kShadowedByOtherMode : AuditKind::kBothModesInUse);
    EXPECT_EQ(meetings[0].severity, row.shadows ? AuditSeverity::kWarning : AuditSeverity::kInfo);
  }
}

TEST(MixedModesTest, TheAuditReportsThemWithTheirSeverity) {
  NodeView view;
  view.surveys = {SurveyOf("nft", kHintText), SurveyOf("legacy", kHintText)};
  EXPECT_THAT(Lines(Audit(view, AuditOptions())), ElementsAre("error TwoHints"));
}

}  // namespace
}  // namespace kipt::agent
