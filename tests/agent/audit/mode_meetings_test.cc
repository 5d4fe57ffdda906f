// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mode_meetings.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/finding.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

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
      // It ends one hook, and the other mode's still comes.
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
               ReadTestdata("rulesets/kube-proxy-1.23-A-v4-legacy.save"));
  ASSERT_FALSE(meetings.empty());
  EXPECT_THAT(meetings[0],
              AllOf(StartsWith("error SameChainInBothModes: "), HasSubstr("nat/KUBE-SVC-*"),
                    HasSubstr("nat/KUBE-POSTROUTING"), Not(HasSubstr("KUBE-PROXY-CANARY"))))
      << "canaries are empty in both";
}

}  // namespace
}  // namespace kipt::agent
