// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/kube_proxy_facts.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::agent {
namespace {

TEST(GenerationTextTest, NamesOneReleaseAndThoseWithoutABeginning) {
  EXPECT_EQ(GenerationText({.oldest = 23, .newest = 23}), "1.23");
  EXPECT_EQ(GenerationText({.newest = 17}), "1.17 or older");
}

// "iptables 1.27 or later, keeps KUBE-MARK-MASQ": all that is known of IPv4.
std::string FactsOf(const netlink::Survey& survey) {
  const KubeProxyFacts facts = FindKubeProxy(survey)[0];
  return absl::StrCat(KubeProxyModeName(facts.mode), " ", GenerationText(facts),
                      facts.KeepsMarkMasq() ? ", keeps KUBE-MARK-MASQ" : "",
                      facts.KeepsFirewall() ? ", keeps KUBE-FIREWALL" : "",
                      facts.MayUseMarkDrop() ? ", may use KUBE-MARK-DROP" : "",
                      facts.leftovers ? ", next to leftovers" : "",
                      facts.may_be_kpng ? ", perhaps kpng" : "");
}

struct FactsRow {
  const char* name;
  std::string text;
  const char* facts;
  const char* native_table = "";  // of family ip
};

// A file of testdata, with `line` before the first `place`.
std::string With(const char* file, const std::string& line = "", const std::string& place = "") {
  std::string text = ReadTestdata(file);
  EXPECT_NE(text, "") << file;
  text.insert(text.find(place), line);
  return text;
}

TEST(KubeProxyFactsTest, AreDerivedFromChainsAndTables) {
  const FactsRow rows[] = {
      {"IPv4 alone cannot tell 1.25 from 1.26", With("rulesets/kube-proxy-1.25-A-v4.save"),
       "iptables 1.25 to 1.26, keeps KUBE-MARK-MASQ"},
      {"a file without table filter shows nothing of it", With("audited/question-v4.save"),
       "iptables 1.18 to 1.21, keeps KUBE-MARK-MASQ, may use KUBE-MARK-DROP, perhaps kpng"},
      // Where a kubelet makes the same chain, its presence proves nothing.
      {"kubelet's firewall is not taken for kube-proxy's",
       With("rulesets/kube-proxy-1.25-A-v4.save",
            ":KUBE-FIREWALL - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n", ":KUBE-FORWARD"),
       "iptables 1.25 to 1.26, keeps KUBE-MARK-MASQ"},
      {"a new release outweighs what an old one left",
       With("rulesets/kube-proxy-1.28-A-v4.save", ":KUBE-XLB-GNZBNJ2PO5MGZ6GT - [0:0]\n",
            ":KUBE-MARK-MASQ"),
       "iptables 1.27 or later, keeps KUBE-MARK-MASQ, keeps KUBE-FIREWALL"},
      {"IPVS mode before 1.25", With("audited/ipvs-1.23-v4.save"),
       "IPVS 1.21 to 1.24, keeps KUBE-MARK-MASQ, may use KUBE-MARK-DROP"},
      {"IPVS mode since", With("audited/ipvs-1.28-v4.save"),
       "IPVS 1.26 to 1.28, keeps KUBE-MARK-MASQ"},
      {"iptables mode where IPVS mode left a chain",
       With("rulesets/kube-proxy-1.25-A-v4.save", ":KUBE-LOAD-BALANCER - [0:0]\n",
            ":KUBE-MARK-MASQ"),
       "iptables 1.25 to 1.26, keeps KUBE-MARK-MASQ"},
      {"only kubelet wrote", With("audited/portmap-v4.save"), "none of unknown release"},
      {"nftables mode has a table and keeps nothing", With("audited/portmap-v4.save"),
       "nftables 1.29 or later", "kube-proxy"},
      {"nor next to leftovers", With("rulesets/kube-proxy-1.28-A-v4.save"),
       "nftables 1.29 or later, next to leftovers", "kube-proxy"},
      {"what --cleanup left",
       NatText({"KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"},
               {"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"}),
       "left over of unknown release"},
      // 1.27.1's own cleanup fails and leaves the chains, but no packet comes there.
      {"what a failed --cleanup left",
       NatText({"KUBE-SERVICES", "KUBE-POSTROUTING"},
               {"-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j "
                "KUBE-POSTROUTING"}),
       "left over of unknown release"},
      {"kpng by its table", "", "kpng of unknown release", "k8s_svc"},
      {"kpng by a missing canary", With("audited/kpng-v4.save"),
       "iptables 1.21 to 1.23, keeps KUBE-MARK-MASQ, may use KUBE-MARK-DROP, perhaps kpng"},
  };
  for (const FactsRow& row : rows) {
    netlink::Survey survey = SurveyOf("nft", row.text);
    if (*row.native_table != '\0') survey.tables[{"ip", row.native_table}]["any"] = {};
    EXPECT_EQ(FactsOf(survey), row.facts) << row.name;
    EXPECT_EQ(FindKubeProxy(survey)[1].mode, KubeProxyMode::kNone) << row.name;
  }
}

TEST(KubeProxyFactsTest, EvidenceNamesWhatIsLeftOver) {
  const std::string text = With("rulesets/kube-proxy-1.28-A-v4.save",
                                ":KUBE-XLB-GNZBNJ2PO5MGZ6GT - [0:0]\n", ":KUBE-MARK-MASQ");
  EXPECT_THAT(FindKubeProxy(SurveyOf("nft", text))[0].evidence, Contains(HasSubstr("left over")));
}

struct JumpRow {
  std::string name;
  std::string file;
  std::vector<std::string> deleted = {};  // how the lines of jumps begin
  std::vector<std::string> lost = {};
  KubeProxyMode mode = KubeProxyMode::kIptables;
};

constexpr char k128[] = "rulesets/kube-proxy-1.28-A-v4.save";
TEST(KubeProxyJumpTest, IsMissedOnALiveNodeAlone) {
  const JumpRow rows[] = {
      {"Sound117", "rulesets/kube-proxy-1.17-A-v4.save"},
      {"Sound123", "rulesets/kube-proxy-1.23-A-v4.save"},
      {"Sound128", k128},
      {"SoundIpvs", "audited/ipvs-1.28-v4.save", List(), List(), KubeProxyMode::kIpvs},
      // Harvester #8217.
      {"Both", k128, List("-A PREROUTING -m", "-A OUTPUT -m comment"),
       List("PREROUTING to nat/KUBE-SERVICES", "OUTPUT to nat/KUBE-SERVICES")},
      {"One", k128, List("-A PREROUTING -m"), List("PREROUTING to nat/KUBE-SERVICES")},
      {"OfIpvs", "audited/ipvs-1.28-v4.save", List("-A PREROUTING -m"),
       List("PREROUTING to nat/KUBE-SERVICES"), KubeProxyMode::kIpvs},
      {"OfMasquerading", k128, List("-A POSTROUTING"), List("POSTROUTING to nat/KUBE-POSTROUTING")},
      {"OfTableFilter", k128, List("-A FORWARD -m comment"),
       List("FORWARD to filter/KUBE-FORWARD")},
      {"WithoutACanary", k128,
       List("-A PREROUTING -m", "-A OUTPUT -m comment", ":KUBE-PROXY-CANARY"), List(),
       KubeProxyMode::kLeftOver},
  };
  for (const JumpRow& row : rows) {
    SCOPED_TRACE(row.name);
    std::string text;
    for (const absl::string_view line : absl::StrSplit(ReadTestdata(row.file), '\n')) {
      const bool deleted = absl::c_any_of(
          row.deleted, [&](const std::string& jump) { return absl::StartsWith(line, jump); });
      if (!deleted) absl::StrAppend(&text, line, "\n");
    }
    const AuditReport report = Audit(ViewOf(SurveyOf("nft", text)), AuditOptions());
    EXPECT_EQ(report.kube_proxy[0].mode, row.mode);
    const AuditFinding* found = FindKind(report, AuditKind::kKubeProxyJumpLost);
    EXPECT_EQ(found == nullptr ? std::vector<std::string>() : found->details, row.lost);
    if (found == nullptr) continue;
    EXPECT_EQ(found->severity, AuditSeverity::kError);
    EXPECT_THAT(found->message, HasSubstr("another program deleted it, or kube-proxy is gone"));
  }
}

}  // namespace
}  // namespace kipt::agent
