// SPDX-License-Identifier: Apache-2.0
#include "agent/config/settings.h"

#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/config/config.h"
#include "tests/agent/config/config_files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::settings_test {
namespace {

TEST(SettingsTest, HaveEachFlagFieldAndMemberOnceAndPrintWhatAFileMayHold) {
  std::set<absl::string_view> flags;
  std::set<absl::string_view> fields;
  for (const Setting& setting : kSettings) {
    EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    EXPECT_TRUE(setting.field.empty() || fields.insert(setting.field).second) << setting.field;
    EXPECT_EQ(SettingOf(setting.member), &setting) << setting.flag;
    if (setting.file == InFile::kNever && !setting.fixed) continue;
    EXPECT_FALSE(setting.field.empty()) << setting.flag;
    EXPECT_NE(setting.print, nullptr) << setting.flag;
  }
}

// What one value does, read from a flag and applied, is printed as that value.
TEST(SettingsTest, PrintEveryAcceptedValueThatIsGiven) {
  int values = 0;
  for (const Setting& setting : kSettings) {
    for (const absl::string_view value :
         absl::StrSplit(setting.accepted, ", ", absl::SkipEmpty())) {
      Flags flags;
      ASSERT_TRUE(ParseFlag(setting, value, flags).ok());
      // The default of --output and --color counts as not given.
      const bool default_value = setting.field.empty() && FlagText(setting, {}) == value;
      EXPECT_EQ(IsGiven(setting, flags), !default_value) << setting.flag;
      EXPECT_EQ(FlagText(setting, flags), value);
      if (setting.print == nullptr) continue;
      const auto config = ResolveConfig(flags, {}, "/proc/self/status");
      ASSERT_TRUE(config.ok()) << config.status();
      EXPECT_EQ(setting.print(*config), value) << setting.flag;
      ++values;
    }
  }
  EXPECT_GE(values, 12);
}

TEST(SettingsTest, RefuseWhatIsNotAcceptedByName) {
  for (const Setting& setting : kSettings) {
    if (setting.accepted.empty() || setting.apply == nullptr) continue;
    Flags flags;
    ASSERT_TRUE(ParseFlag(setting, "no", flags).ok());
    const auto status = ResolveConfig(flags).status();
    EXPECT_EQ(status.message(), absl::StrCat("--", setting.flag, ": invalid value \"no\"; ",
                                             "accepted are ", setting.accepted));
  }
}

TEST(SettingsTest, HaveTheirDefaultInTheHelpOnce) {
  for (const Setting& setting : kSettings) {
    const std::string help = HelpWithDefault(setting);
    const std::vector<std::string> parts = absl::StrSplit(help, "(default ");
    EXPECT_LE(parts.size(), 2u) << help;
    EXPECT_TRUE(absl::StartsWith(help, setting.help));
  }
  EXPECT_THAT(HelpWithDefault(*SettingOf(&Flags::watch)), HasSubstr(" (default events)"));
  EXPECT_EQ(HelpWithDefault(*SettingOf(&Flags::v)), SettingOf(&Flags::v)->help);
}

const Setting& OfFlag(absl::string_view flag) {
  return *absl::c_find_if(kSettings, [&](const Setting& setting) { return setting.flag == flag; });
}

TEST(SettingsTest, ComeFromTheAgentsOwnFileAndFlagsWinOverIt) {
  struct Row {
    const char* flag;
    const char* in_file;
    const char* by_flag;
  };
  const ConfigFiles node;
  const Config defaults = *node.Load(Flags{});
  for (const Row& row : {
           Row{"ip-families", "ipv4", "auto"},
           Row{"iptables-mode", "legacy", "nft"},
           Row{"iptables-sync-period", "1m30s", "24h0m0s"},
           Row{"watch", "poll", "events"},
           Row{"observe", "true", "false"},
           Row{"healthz-bind-address", "127.0.0.1:1", "0.0.0.0:65535"},
           Row{"metrics-bind-address", "'[::1]:0'", ""},
           Row{"stale-chains", "retire", "keep"},
           Row{"hint-policy", "always", "usable"},
           Row{"cni-conf-dir", "/a,/b", "/c"},
           Row{"incidents-file", "/a", ""},
           Row{"foreign-rules", "report", "ignore"},
           Row{"audit-period", "1h0m0s", "0s"},
           Row{"iptables-masquerade-label", "3", "0"},
           Row{"iptables-drop-label", "4", "127"},
       }) {
    SCOPED_TRACE(row.flag);
    const Setting& setting = OfFlag(row.flag);
    const std::string field = absl::StrCat(setting.field, ": ", row.in_file, "\n");
    Flags flags = {.feature_gates = {"ConnLabelMarking=true"}};
    const auto by_file = node.Load(flags, Agent(field));
    ASSERT_TRUE(by_file.ok()) << by_file.status();
    EXPECT_EQ(setting.print(*by_file), absl::StrReplaceAll(row.in_file, {{"'", ""}}));
    ASSERT_TRUE(ParseFlag(setting, row.by_flag, flags).ok());
    const auto by_both = node.Load(flags, Agent(field));
    ASSERT_TRUE(by_both.ok()) << by_both.status();
    EXPECT_EQ(setting.print(*by_both), row.by_flag);
    const auto by_kubelets = node.Load({}, Kubelet(field));
    ASSERT_TRUE(by_kubelets.ok()) << by_kubelets.status();
    EXPECT_EQ(setting.print(*by_kubelets), setting.print(defaults));
  }
}

TEST(WhatNeedsARestartTest, IsWhatIsFixedAtStartWithBothValues) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config desired = *node.Load(Flags{.iptables_mode = "legacy",
                                          .host_root = "/",
                                          .watch = "poll",
                                          .healthz_bind_address = "",
                                          .metrics_bind_address = "[::]:1"});
  EXPECT_THAT(WhatNeedsARestart(running, desired),
              ElementsAre("iptablesMode: auto now, legacy desired",
                          "hostRoot: (own) now, / desired", "watch: events now, poll desired",
                          "healthzBindAddress: 127.0.0.1:10270 now, (none) desired",
                          "metricsBindAddress: 127.0.0.1:10271 now, [::]:1 desired"));
}

TEST(ExpectedRulesTest, ComeFromAFileOfTheirOwn) {
  const ConfigFiles node;
  const TemporaryTree tree;
  tree.Write("expected", "filter/INPUT\nip6 nat/OUTPUT -j DNAT*\n");
  const std::string file = Agent("expectedRules: " + tree.Path("expected"));
  EXPECT_THAT(node.Load({}, file)->expected_rules, SizeIs(2));
  EXPECT_THAT(node.Load({.expected_rules = ""}, file)->expected_rules, IsEmpty());
  tree.Write("expected", "filter\n");
  EXPECT_FALSE(node.Load({}, file).ok());
  EXPECT_FALSE(node.Load({.expected_rules = "/none"}).ok());
}

TEST(ConnLabelSettingsTest, HaveNoEffectWhereTheGateIsOff) {
  const auto config =
      ConfigFiles().Load({.iptables_masquerade_label = 9, .iptables_drop_label = 9});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->labels, ConnLabels());
  EXPECT_THAT(config->warnings,
              ElementsAre("--iptables-masquerade-label has no effect where ConnLabelMarking is off",
                          "--iptables-drop-label has no effect where ConnLabelMarking is off"));
}

}  // namespace
}  // namespace kipt::agent::settings_test
