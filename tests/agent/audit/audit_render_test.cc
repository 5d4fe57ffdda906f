// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "tests/agent/audit/audited.h"

namespace kipt::agent {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

NodeView HandWritten() {
  return ViewOf(SurveyOf("nft", ReadTestdata("audited/hand-written-v4.save")));
}

TEST(AuditTextTest, SaysWhoWhereAndWhatToDo) {
  const std::string text = AuditText(Audit(HandWritten(), AuditOptions()));
  EXPECT_THAT(text, StartsWith("error   ChainUser  nft ip nat/KUBE-MARK-DROP\n"));
  EXPECT_THAT(text, HasSubstr("(1 rule, hit by 5\n    packets)"));
  EXPECT_THAT(text, HasSubstr("      -A OFFICE-MASQ -s 192.168.7.0/24 -j KUBE-MARK-MASQ\n"));
  EXPECT_THAT(text, HasSubstr("    -> Drop in table filter"));
  EXPECT_THAT(text, EndsWith("2 errors, 4 warnings, 2 for information\n"));
}

TEST(AuditTextTest, AnAllowedFindingGivesItsReasonInsteadOfAdvice) {
  AuditOptions options;
  options.allow = *ParseAllowList("* * -A CNI-DN- # until spring");
  const std::string text =
      AuditText(Audit(ViewOf(SurveyOf("nft", ReadTestdata("audited/portmap-v4.save"))), options));
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

TEST(AuditJsonTest, TakesAnyBytes) {
  NodeView view;
  view.problems = {"\xff\xfe"};
  EXPECT_FALSE(nlohmann::json::parse(AuditJson(Audit(view, AuditOptions()))).empty());
}

TEST(AuditDotTest, DrawsServicesAsOneNodeAndFindingsInRed) {
  const NodeView view = HandWritten();
  const std::string dot = AuditDot(view, Audit(view, AuditOptions()));
  EXPECT_THAT(dot, StartsWith("digraph "));
  EXPECT_THAT(dot, HasSubstr("label=\"KUBE-SEP-* (4)\""));
  EXPECT_THAT(dot, Not(HasSubstr("GNZBNJ2PO5MGZ6GT")));
  EXPECT_THAT(dot, ContainsRegex("KUBE-MARK-DROP\" \\[label=\"[^\"]*MarkDropEmpty\"[^]]*#d40000"));
  EXPECT_THAT(dot,
              ContainsRegex("OFFICE-MASQ\" -> \"nft ip nat/KUBE-MARK-MASQ\" "
                            "\\[label=\"1 rule.n5 packets\", penwidth=2.5, color=\"#e07b00\""));
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
