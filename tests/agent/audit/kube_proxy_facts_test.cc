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

// ---- the release, from what each captured release wrote ----

struct ReleaseRow {
  std::string name;
  std::string file;  // without "-v4.save"
  std::string release;
};

TEST(KubeProxyReleaseTest, IsToldFromItsRules) {
  const ReleaseRow rows[] = {
      {"R1_17", "rulesets/kube-proxy-1.17-A", "1.17 or older"},
      {"R1_18", "audited/kube-proxy-1.18-A", "1.18"},
      {"R1_20", "audited/kube-proxy-1.20-A", "1.20"},
      {"R1_21", "audited/kube-proxy-1.21-A", "1.21"},
      {"R1_22", "audited/kube-proxy-1.22-A", "1.22"},
      {"R1_23", "rulesets/kube-proxy-1.23-A", "1.23"},
      {"R1_24", "rulesets/kube-proxy-1.24-A", "1.24"},
      {"R1_25", "rulesets/kube-proxy-1.25-A", "1.25"},
      {"R1_26", "audited/kube-proxy-1.26-A", "1.26"},
      {"R1_27", "audited/kube-proxy-1.27-A", "1.27 or later"},
      {"R1_28", "rulesets/kube-proxy-1.28-A", "1.27 or later"},
      {"R1_30", "audited/kube-proxy-1.30-A", "1.27 or later"},
  };
  for (const ReleaseRow& row : rows) {
    SCOPED_TRACE(row.name);
    const std::string v4 = ReadTestdata(row.file + "-v4.save");
    const std::string v6 = ReadTestdata(row.file + "-v6.save");
    ASSERT_NE(v4, "");
    ASSERT_NE(v6, "");
    const std::vector<KubeProxyFacts> facts = FindKubeProxy(SurveyOf("nft", v4, v6));
    ASSERT_THAT(facts, SizeIs(2));
    for (const KubeProxyFacts& one : facts) {
      EXPECT_EQ(one.mode, KubeProxyMode::kIptables);
      EXPECT_EQ(GenerationText(one), row.release);
      EXPECT_FALSE(one.may_be_kpng);
    }
  }
}

KubeProxyFacts FactsOf(const std::string& v4) { return FindKubeProxy(SurveyOf("nft", v4))[0]; }

TEST(KubeProxyFactsTest, IPv4AloneCannotTell125From126) {
  const KubeProxyFacts facts = FactsOf(ReadTestdata("audited/kube-proxy-1.26-A-v4.save"));
  EXPECT_EQ(GenerationText(facts), "1.25 to 1.26");
}

TEST(KubeProxyFactsTest, AFileWithoutTableFilterTellsNothingOfIt) {
  const KubeProxyFacts facts = FactsOf(ReadTestdata("audited/question-v4.save"));
  EXPECT_EQ(facts.mode, KubeProxyMode::kIptables);
  EXPECT_EQ(GenerationText(facts), "1.18 to 1.21");
}

// Beside a kubelet that makes the same chain, its presence proves nothing.
TEST(KubeProxyFactsTest, KubeletsFirewallIsNotTakenForKubeProxys) {
  std::string text = ReadTestdata("audited/kube-proxy-1.26-A-v4.save");
  text.replace(text.find(":KUBE-PROXY-CANARY"), 0, ":KUBE-IPTABLES-HINT - [0:0]\n");
  text.replace(text.find("*filter\n") + 8, 0, ":KUBE-FIREWALL - [0:0]\n");
  const KubeProxyFacts facts = FactsOf(text);
  EXPECT_EQ(facts.oldest, 25);
  EXPECT_FALSE(facts.KeepsFirewall());
}

TEST(KubeProxyFactsTest, ANewReleaseOutweighsWhatAnOldOneLeft) {
  std::string text = ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save");
  text.replace(text.find(":KUBE-MARK-MASQ"), 0, ":KUBE-XLB-GNZBNJ2PO5MGZ6GT - [0:0]\n");
  const KubeProxyFacts facts = FactsOf(text);
  EXPECT_EQ(GenerationText(facts), "1.27 or later");
  EXPECT_THAT(facts.evidence, Contains(HasSubstr("left over")));
  EXPECT_FALSE(facts.MayUseMarkDrop());
}

// ---- the mode ----

TEST(KubeProxyFactsTest, IpvsModeIsTwoGenerations) {
  const KubeProxyFacts before = FactsOf(ReadTestdata("audited/ipvs-1.23-v4.save"));
  EXPECT_EQ(before.mode, KubeProxyMode::kIpvs);
  EXPECT_EQ(GenerationText(before), "1.21 to 1.24");
  EXPECT_TRUE(before.MayUseMarkDrop());
  const KubeProxyFacts after = FactsOf(ReadTestdata("audited/ipvs-1.28-v4.save"));
  EXPECT_EQ(after.mode, KubeProxyMode::kIpvs);
  EXPECT_EQ(GenerationText(after), "1.26 to 1.28");
  EXPECT_FALSE(after.MayUseMarkDrop());
  EXPECT_TRUE(after.KeepsMarkMasq());
  EXPECT_FALSE(after.may_be_kpng);
}

TEST(KubeProxyFactsTest, NoneWhereOnlyKubeletWrote) {
  const KubeProxyFacts facts = FactsOf(ReadTestdata("audited/portmap-v4.save"));
  EXPECT_EQ(facts.mode, KubeProxyMode::kNone);
  EXPECT_FALSE(facts.KeepsMarkMasq());
}

TEST(KubeProxyFactsTest, NftablesModeHasATableAndKeepsNothing) {
  netlink::Survey survey = SurveyOf("nft", ReadTestdata("audited/portmap-v4.save"));
  survey.tables[{"ip", "kube-proxy"}]["masquerading"] = {};
  const KubeProxyFacts facts = FindKubeProxy(survey)[0];
  EXPECT_EQ(facts.mode, KubeProxyMode::kNftables);
  EXPECT_FALSE(facts.KeepsMarkMasq());
  EXPECT_FALSE(facts.leftovers);
}

TEST(KubeProxyFactsTest, NftablesModeBesideLeftOversKeepsNothingEither) {
  netlink::Survey survey = SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"));
  survey.tables[{"ip", "kube-proxy"}]["masquerading"] = {};
  const KubeProxyFacts facts = FindKubeProxy(survey)[0];
  EXPECT_EQ(facts.mode, KubeProxyMode::kNftables);
  EXPECT_TRUE(facts.leftovers);
  EXPECT_FALSE(facts.KeepsMarkMasq());
}

TEST(KubeProxyFactsTest, WhatCleanupLeftIsLeftOver) {
  const std::string cleaned = NatText({"KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"},
                                      {"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"});
  EXPECT_EQ(FactsOf(cleaned).mode, KubeProxyMode::kLeftOver);
  // 1.27.1's own cleanup fails and leaves the chains, but no packet comes there.
  const std::string failed = NatText(
      {"KUBE-SERVICES", "KUBE-POSTROUTING"},
      {"-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING"});
  EXPECT_EQ(FactsOf(failed).mode, KubeProxyMode::kLeftOver);
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
      {"Sound130", "audited/kube-proxy-1.30-A-v4.save"},
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

TEST(KubeProxyFactsTest, KpngIsToldByItsTablesOrByAMissingCanary) {
  netlink::Survey survey = SurveyOf("nft", "");
  survey.tables[{"ip", "k8s_svc"}] = {};
  EXPECT_EQ(FindKubeProxy(survey)[0].mode, KubeProxyMode::kKpng);
  EXPECT_EQ(FindKubeProxy(survey)[1].mode, KubeProxyMode::kNone);
  EXPECT_TRUE(FactsOf(ReadTestdata("audited/kpng-v4.save")).may_be_kpng);
}

}  // namespace
}  // namespace kipt::agent
