// SPDX-License-Identifier: Apache-2.0
#include "agent/config/settings.h"

#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "tests/agent/config/config_files.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::settings_test {
namespace {

TEST(SettingsTest, HaveEachFlagFieldAndMemberOnce) {
  std::set<absl::string_view> flags;
  std::set<absl::string_view> fields;
  for (const Setting& setting : kSettings) {
    EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    EXPECT_TRUE(setting.field.empty() || fields.insert(setting.field).second) << setting.field;
    EXPECT_EQ(SettingOf(setting.member), &setting) << setting.flag;
  }
}

TEST(SettingsTest, AreSortedForHelp) {
  const std::vector<const Setting*> settings = SettingsByFlag();
  EXPECT_EQ(settings.size(), kSettings.size());
  EXPECT_TRUE(absl::c_is_sorted(
      settings, [](const Setting* a, const Setting* b) { return a->flag < b->flag; }));
}

TEST(SettingsTest, ThatAFileMayHoldArePartOfAConfig) {
  for (const Setting& setting : kSettings) {
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

// The settings of `run`: where they come from, and which of them can change while it runs.

TEST(DaemonSettingsTest, ComeFromTheFileAndFlagsWinOverIt) {
  const ConfigFiles node;
  const std::string file = Agent(
      "iptablesSyncPeriod: 90s\nwatch: poll\nobserve: true\nhealthzBindAddress: ''\n"
      "metricsBindAddress: '[::1]:0'\n");
  const auto by_file = node.Load({}, file);
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  EXPECT_EQ(by_file->iptables_sync_period, absl::Seconds(90));
  EXPECT_EQ(by_file->watch, netlink::WatchMode::kPoll);
  EXPECT_TRUE(by_file->observe);
  EXPECT_EQ(by_file->healthz_bind_address, "");
  EXPECT_EQ(by_file->metrics_bind_address, "[::1]:0");
  const auto by_flags = node.Load({.iptables_sync_period = absl::Hours(24),
                                   .watch = "events",
                                   .observe = false,
                                   .healthz_bind_address = "0.0.0.0:65535",
                                   .metrics_bind_address = ""},
                                  file);
  ASSERT_TRUE(by_flags.ok()) << by_flags.status();
  EXPECT_EQ(by_flags->iptables_sync_period, absl::Hours(24));
  EXPECT_EQ(by_flags->watch, netlink::WatchMode::kEvents);
  EXPECT_FALSE(by_flags->observe);
  EXPECT_EQ(by_flags->healthz_bind_address, "0.0.0.0:65535");
  EXPECT_EQ(by_flags->metrics_bind_address, "");
}

TEST(DaemonSettingsTest, AreNotReadFromAKubeletConfiguration) {
  const ConfigFiles node;
  const auto config =
      node.Load({}, Kubelet("iptablesSyncPeriod: 1\nhealthzBindAddress: 0.0.0.0\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->iptables_sync_period, absl::Minutes(1));
  EXPECT_EQ(config->healthz_bind_address, "127.0.0.1:10270");
}

TEST(WhatNeedsARestartTest, IsWhatIsFixedAtStartWithBothValues) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config wanted = *node.Load(Flags{.iptables_mode = "legacy",
                                         .host_root = "/",
                                         .watch = "poll",
                                         .healthz_bind_address = "",
                                         .metrics_bind_address = "[::]:1"});
  EXPECT_THAT(WhatNeedsARestart(running, wanted),
              ElementsAre("iptablesMode: auto now, legacy desired",
                          "hostRoot: (own) now, / desired", "watch: events now, poll desired",
                          "healthzBindAddress: 127.0.0.1:10270 now, (none) desired",
                          "metricsBindAddress: 127.0.0.1:10271 now, [::]:1 desired"));
}

TEST(WhatNeedsARestartTest, IsNothingWhereOnlyRulesAndTimesChange) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config wanted = *node.Load(Flags{.feature_gates = {kOff},
                                         .make_iptables_util_chains = false,
                                         .iptables_masquerade_bit = 3,
                                         .emulated_version = "1.26",
                                         .ip_families = "ipv4",
                                         .iptables_sync_period = absl::Seconds(5)});
  EXPECT_FALSE(running == wanted);
  EXPECT_THAT(WhatNeedsARestart(running, wanted), IsEmpty());
  EXPECT_THAT(WhatNeedsARestart(wanted, running), IsEmpty());
}

// ---- What becomes of other people's and of stale chains: where the settings come from. ----

TEST(OwnershipSettingsTest, KeepEverythingUnlessToldOtherwise) {
  const auto config = ConfigFiles().Load(Flags{});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->stale_chains, StaleChains::kKeep);
  EXPECT_EQ(config->hint_policy, HintPolicy::kUsable);
  EXPECT_THAT(config->cni_conf_dirs, IsEmpty());
}

TEST(OwnershipSettingsTest, ComeFromTheFileAndFlagsWinOverIt) {
  const ConfigFiles node;
  const std::string file = Agent("staleChains: retire\nhintPolicy: always\ncniConfDir: /a,/b\n");
  const auto by_file = node.Load({}, file);
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  EXPECT_EQ(by_file->stale_chains, StaleChains::kRetire);
  EXPECT_EQ(by_file->hint_policy, HintPolicy::kAlways);
  EXPECT_THAT(by_file->cni_conf_dirs, ElementsAre("/a", "/b"));
  const auto by_flags =
      node.Load({.stale_chains = "keep", .hint_policy = "usable", .cni_conf_dir = "/c"}, file);
  ASSERT_TRUE(by_flags.ok()) << by_flags.status();
  EXPECT_EQ(by_flags->stale_chains, StaleChains::kKeep);
  EXPECT_EQ(by_flags->hint_policy, HintPolicy::kUsable);
  EXPECT_THAT(by_flags->cni_conf_dirs, ElementsAre("/c"));
}

TEST(OwnershipSettingsTest, AreNotReadFromAKubeletConfiguration) {
  const auto config = ConfigFiles().Load({}, Kubelet("staleChains: nonsense\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->stale_chains, StaleChains::kKeep);
}

TEST(OwnershipSettingsTest, CanChangeWhileTheDaemonRuns) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config wanted =
      *node.Load(Flags{.stale_chains = "retire", .hint_policy = "always", .cni_conf_dir = "/c"});
  EXPECT_THAT(WhatNeedsARestart(running, wanted), IsEmpty());
  EXPECT_NE(ToString(running), ToString(wanted));
}

TEST(OwnershipSettingsTest, WhatIsExpectedOfOthersComesFromAFileOfItsOwn) {
  const ConfigFiles node;
  const TemporaryTree tree;
  tree.Write("expected", "filter/INPUT\nip6 nat/OUTPUT -j DNAT*\n");
  const std::string list = tree.Path("expected");
  const std::string file = Agent("foreignRules: report\nincidentsFile: /a\nexpectedRules: " + list);
  const auto by_file = node.Load({}, file);
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  EXPECT_EQ(by_file->foreign_rules, ForeignRulesPolicy::kReport);
  EXPECT_EQ(by_file->incidents_file, "/a");
  EXPECT_THAT(by_file->expected_rules, SizeIs(2));
  const auto by_flags =
      node.Load({.incidents_file = "", .foreign_rules = "ignore", .expected_rules = ""}, file);
  ASSERT_TRUE(by_flags.ok()) << by_flags.status();
  EXPECT_EQ(by_flags->foreign_rules, ForeignRulesPolicy::kIgnore);
  EXPECT_EQ(by_flags->incidents_file, "");
  EXPECT_THAT(by_flags->expected_rules, IsEmpty());
  // The daemon opens its file once.
  EXPECT_THAT(WhatNeedsARestart(*by_file, *by_flags), ElementsAre(HasSubstr("incidentsFile")));
  tree.Write("expected", "filter\n");
  EXPECT_FALSE(node.Load({}, file).ok());
  EXPECT_FALSE(node.Load({.expected_rules = "/none"}).ok());
}

struct BadSetting {
  std::string name;
  Flags flags;
  std::string message;
  std::string file = {};
};

TEST(OwnershipSettingsTest, SayWhatIsWrongAndWhatIsAccepted) {
  const ConfigFiles node;
  const BadSetting rows[] = {
      {"flag", Flags{.stale_chains = "drop"},
       "--stale-chains: invalid value \"drop\"; accepted are keep, retire"},
      {"file", Flags(), ":3: staleChains: invalid value \"drop\"; accepted are keep, retire",
       Agent("staleChains: drop\n")},
      {"hint", Flags{.hint_policy = ""},
       "--hint-policy: invalid value \"\"; accepted are usable, always"},
      {"relative", Flags{.cni_conf_dir = "/a,b"},
       "--cni-conf-dir: invalid value \"b\"; give absolute paths"},
      {"empty between", Flags{.cni_conf_dir = "/a,,/b"},
       "--cni-conf-dir: invalid value \"\"; give absolute paths"},
  };
  for (const BadSetting& bad : rows) {
    const auto config = node.Load(bad.flags, bad.file);
    ASSERT_FALSE(config.ok()) << bad.name;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.message)) << bad.name;
  }
}

// ---- The labels of ConnLabelMarking in the configuration. ----

constexpr char kOn[] = "ConnLabelMarking=true";

struct LabelCase {
  std::string name;
  Flags flags;
  ConnLabels labels = {};
  std::string file = {};
  std::vector<std::string> warnings = {};
};

TEST(ConnLabelSettingsTest, FlagsWinOverTheFileAndTheFileOverTheDefaults) {
  const LabelCase rows[] = {
      {"NothingGiven", Flags{.feature_gates = {kOn}}},
      {"Flags",
       Flags{.feature_gates = {kOn}, .iptables_masquerade_label = 0, .iptables_drop_label = 127},
       ConnLabels{.masquerade = 0, .drop = 127}},
      {"AFile", Flags{.feature_gates = {kOn}}, ConnLabels{.masquerade = 3, .drop = 4},
       Agent("iptablesMasqueradeLabel: 3\niptablesDropLabel: 4\n")},
      {"AFlagOverAFile", Flags{.feature_gates = {kOn}, .iptables_drop_label = 5},
       ConnLabels{.masquerade = 3, .drop = 5},
       Agent("iptablesMasqueradeLabel: 3\niptablesDropLabel: 4\n")},
      {"EqualWhereTheGateIsOff", Flags{.iptables_masquerade_label = 9, .iptables_drop_label = 9},
       ConnLabels(), "",
       List("--iptables-masquerade-label has no effect where ConnLabelMarking is off",
            "--iptables-drop-label has no effect where ConnLabelMarking is off")},
  };
  const ConfigFiles node;
  for (const LabelCase& row : rows) {
    const auto config = node.Load(row.flags, row.file);
    ASSERT_TRUE(config.ok()) << row.name << config.status();
    EXPECT_EQ(config->labels, row.labels) << row.name;
    EXPECT_EQ(config->warnings, row.warnings) << row.name;
  }
}

TEST(ConnLabelSettingsTest, RefusesWhatIsNoPairOfLabels) {
  struct Row {
    const char* name;
    Flags flags;
    std::string message;
    std::string file = {};
  };
  const Row rows[] = {
      {"128", Flags{.iptables_drop_label = 128},
       "invalid configuration: iptablesDropLabel (--iptables-drop-label) 128 must be between 0 and "
       "127, inclusive; found 128 (from the flag --iptables-drop-label)"},
      {"-1 in a file", Flags(),
       "iptablesMasqueradeLabel (--iptables-masquerade-label) -1 must be between 0 and 127",
       Agent("iptablesMasqueradeLabel: -1\n")},
      {"equal", Flags{.feature_gates = {kOn}, .iptables_drop_label = 114},
       "iptables-masquerade-label and iptables-drop-label must be different; found 114 (the "
       "default) and 114 (from the flag --iptables-drop-label)"},
      {"kubelet's file", Flags{.feature_gates = {kOn}}, "featureGates.ConnLabelMarking",
       Kubelet("featureGates: {ConnLabelMarking: 1}\n")},
  };
  const ConfigFiles node;
  for (const Row& row : rows) {
    const auto config = node.Load(row.flags, row.file);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << row.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(row.message)) << row.name;
  }
}

}  // namespace
}  // namespace kipt::agent::settings_test
