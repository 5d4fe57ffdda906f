// SPDX-License-Identifier: Apache-2.0
#include "agent/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kipt::agent {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace kipt::agent
