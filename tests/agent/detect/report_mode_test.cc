// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "agent/commands.h"
#include "agent/report/report.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent::report_mode_test {
namespace {

using Json = nlohmann::json;

FamilyMode Mode(IptablesMode mode, bool contradiction = false,
                std::vector<std::string> findings = {}) {
  return {.family = Family::kIPv4,
          .mode = mode,
          .evidence = {{EvidenceSource::kFlag, IptablesMode::kNone, "--iptables-mode=auto"},
                       {EvidenceSource::kHint, IptablesMode::kNft, "what was seen"}},
          .findings = std::move(findings),
          .contradiction = contradiction};
}

struct Row {
  std::string name;
  std::vector<FamilyMode> modes;
  ExitCode code;
};

TEST(DetectExitCodeTest, TellsAScriptWhatWasFound) {
  const Row rows[] = {
      {"AMode", {Mode(IptablesMode::kNft)}, kExitOk},
      {"NoneIsAnAnswer", {Mode(IptablesMode::kNone)}, kExitOk},
      {"TwoModes", {Mode(IptablesMode::kNft), Mode(IptablesMode::kLegacy)}, kExitOk},
      {"Unknown", {Mode(IptablesMode::kNft), Mode(IptablesMode::kUnknown)}, kExitFailed},
      {"AContradiction", {Mode(IptablesMode::kNft, true, {"x"})}, kExitDifferences},
      {"UnknownForAContradiction", {Mode(IptablesMode::kUnknown, true, {"x"})}, kExitDifferences},
      {"AContradictionBesideAnUnknown",
       {Mode(IptablesMode::kUnknown), Mode(IptablesMode::kNft, true, {"x"})},
       kExitDifferences},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    for (const OutputFormat format : {OutputFormat::kText, OutputFormat::kJson}) {
      std::ostringstream out;
      EXPECT_EQ(RunDetect(row.modes, format, out), row.code);
      EXPECT_NE(out.str(), "");
    }
  }
}

TEST(DetectReportTest, TheTextListsEveryEvidence) {
  EXPECT_EQ(DetectText({Mode(IptablesMode::kUnknown, true, {"two hints"})}),
            "ip: unknown\n"
            "  flag     none     --iptables-mode=auto\n"
            "  hint     nft      what was seen\n"
            "  ! cannot tell which iptables this node uses for ip: two hints; give "
            "--iptables-mode=nft or --iptables-mode=legacy; `kube-iptables-agent detect` shows the "
            "evidence\n");
  EXPECT_THAT(DetectText({Mode(IptablesMode::kNft, true, {"a canary"})}), EndsWith("! a canary\n"));
}

TEST(DetectReportTest, TheJsonSaysTheSame) {
  const Json json = Json::parse(DetectJson({Mode(IptablesMode::kUnknown, true, {"two hints"})}));
  EXPECT_EQ(json, Json::parse(R"({"families": [{
    "family": "ip", "iptablesMode": "unknown", "contradiction": true, "findings": ["two hints"],
    "problem": "cannot tell which iptables this node uses for ip: two hints; give --iptables-mode=nft or --iptables-mode=legacy; `kube-iptables-agent detect` shows the evidence",
    "evidence": [{"source": "flag", "says": "none", "text": "--iptables-mode=auto"},
                 {"source": "hint", "says": "nft", "text": "what was seen"}]}]})"));
}

// ---- the mode that is not managed, in plan and status ----

Subject WithOther(std::optional<OtherMode> other) {
  return {.emulated_version = {1, 27},
          .iptables_mode = "nft",
          .input = Wanting(agent::Mode::kCleanup, netlink::kFamilies, {}),
          .other_mode = std::move(other)};
}

TEST(OtherModeReportTest, PlanAndStatusListItsChains) {
  Subject subject = WithOther(
      OtherMode{"legacy", {Mangle("KUBE-IPTABLES-HINT"), Nat("KUBE-MARK-DROP", Family::kIPv6)}});
  constexpr char kSection[] =
      "\nother iptables mode, legacy, which is not managed\n"
      "  . ip mangle KUBE-IPTABLES-HINT\n"
      "  . ip6 nat KUBE-MARK-DROP\n";
  EXPECT_THAT(PlanText(subject, {}),
              AllOf(EndsWith(", 0 findings, 2 not managed (--all lists what is unchanged)\n"),
                    Not(HasSubstr("KUBE-MARK-DROP"))));
  subject.show_all = true;
  EXPECT_THAT(PlanText(subject, {}), HasSubstr(std::string(kSection) + "\n0 to add"));
  EXPECT_THAT(StatusText(subject, {}), EndsWith(kSection));
  const Json wanted = Json::parse(R"({"iptablesMode": "legacy", "problem": "", "chains": [
      {"family": "ip", "table": "mangle", "chain": "KUBE-IPTABLES-HINT"},
      {"family": "ip6", "table": "nat", "chain": "KUBE-MARK-DROP"}]})");
  EXPECT_EQ(Json::parse(PlanJson(subject, {}))["otherMode"], wanted);
  EXPECT_EQ(Json::parse(StatusJson(subject, {}))["otherMode"], wanted);
}

TEST(OtherModeReportTest, SaysWhatMisleadsIptablesWrappers) {
  OtherMode other = {"nft", {Mangle("KUBE-KUBELET-CANARY"), Nat("KUBE-KUBELET-CANARY")}};
  constexpr char kWhy[] = "ip mangle KUBE-KUBELET-CANARY  # misleading: iptables-wrappers";
  const std::string text = StatusText(WithOther(other), {});
  EXPECT_THAT(text, HasSubstr(kWhy));
  EXPECT_THAT(text, HasSubstr("ip nat KUBE-KUBELET-CANARY\n"));
  EXPECT_THAT(PlanText(WithOther(other), {}),
              AllOf(HasSubstr(kWhy), Not(HasSubstr("ip nat KUBE-KUBELET-CANARY"))));
  other.iptables_mode = "legacy";
  EXPECT_THAT(StatusText(WithOther(other), {}), Not(HasSubstr("misleading")));
}

TEST(OtherModeReportTest, SaysWhyItCouldNotBeLookedInto) {
  const Subject subject =
      WithOther(OtherMode{.iptables_mode = "legacy", .problem = "not installed"});
  EXPECT_THAT(StatusText(subject, {}), HasSubstr("could not be read: not installed"));
  EXPECT_EQ(Json::parse(PlanJson(subject, {}))["otherMode"]["problem"], "not installed");
}

TEST(OtherModeReportTest, NothingThereIsNoSectionButAnEmptyListInJson) {
  const Subject subject = WithOther(OtherMode{.iptables_mode = "legacy"});
  EXPECT_EQ(StatusText(subject, {}), StatusText(WithOther(std::nullopt), {}));
  EXPECT_EQ(PlanText(subject, {}), PlanText(WithOther(std::nullopt), {}));
  EXPECT_TRUE(Json::parse(PlanJson(subject, {}))["otherMode"]["chains"].empty());
  EXPECT_FALSE(Json::parse(PlanJson(WithOther(std::nullopt), {})).contains("otherMode"));
}

}  // namespace
}  // namespace kipt::agent::report_mode_test
