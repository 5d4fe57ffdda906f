// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
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

TEST(DetectExitCodeTest, ReportsTheResultToAScript) {
  const FamilyMode nft = Mode(IptablesMode::kNft);
  const FamilyMode unknown = Mode(IptablesMode::kUnknown);
  const FamilyMode contradicted = Mode(IptablesMode::kNft, true, {"x"});
  const std::pair<std::vector<FamilyMode>, ExitCode> rows[] = {
      {{nft}, kExitOk},
      {{Mode(IptablesMode::kNone)}, kExitOk},
      {{nft, Mode(IptablesMode::kLegacy)}, kExitOk},
      {{nft, unknown}, kExitFailed},
      {{contradicted}, kExitDifferences},
      {{Mode(IptablesMode::kUnknown, true, {"x"})}, kExitDifferences},
      {{unknown, contradicted}, kExitDifferences},
  };
  for (const auto& [modes, code] : rows) {
    for (const OutputFormat format : {OutputFormat::kText, OutputFormat::kJson}) {
      std::ostringstream out;
      EXPECT_EQ(RunDetect(modes, format, out), code) << out.str();
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

Subject WithOther(std::optional<OtherMode> other) {
  return {.emulated_version = {1, 27},
          .iptables_mode = "nft",
          .input = Wanting(agent::Mode::kCleanup, netlink::kFamilies, {}),
          .other_mode = std::move(other)};
}

TEST(OtherModeReportTest, NamesWhatMisleadsIptablesWrappers) {
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

TEST(OtherModeReportTest, ReportsWhyItCouldNotBeRead) {
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
