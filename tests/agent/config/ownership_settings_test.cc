// SPDX-License-Identifier: Apache-2.0
//
// What becomes of other people's and of stale chains: where the settings come from.
#include <string>

#include "agent/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/agent/config/config_files.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  const kipt::testing::TemporaryTree tree;
  tree.Write("expected", "filter/INPUT\nip6 nat/OUTPUT -j DNAT*\n");
  const std::string list = tree.Path("expected");
  const std::string file = Agent("foreignRules: report\nincidentsFile: /a\nexpectedRules: " + list);
  const auto by_file = node.Load({}, file);
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  EXPECT_EQ(by_file->foreign_rules, ForeignRulesPolicy::kReport);
  EXPECT_EQ(by_file->incidents_file, "/a");
  EXPECT_THAT(by_file->expected_rules, ::testing::SizeIs(2));
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
  std::string file;
  std::string message;
};

TEST(OwnershipSettingsTest, SayWhatIsWrongAndWhatIsAccepted) {
  const ConfigFiles node;
  for (const BadSetting& bad : {
           BadSetting{"flag",
                      {.stale_chains = "drop"},
                      "",
                      "--stale-chains: invalid value \"drop\"; accepted are keep, retire"},
           BadSetting{"file",
                      {},
                      Agent("staleChains: drop\n"),
                      ":3: staleChains: invalid value \"drop\"; accepted are keep, retire"},
           BadSetting{"hint",
                      {.hint_policy = ""},
                      "",
                      "--hint-policy: invalid value \"\"; accepted are usable, always"},
           BadSetting{"relative",
                      {.cni_conf_dir = "/a,b"},
                      "",
                      "--cni-conf-dir: invalid value \"b\"; give absolute paths"},
           BadSetting{"empty between",
                      {.cni_conf_dir = "/a,,/b"},
                      "",
                      "--cni-conf-dir: invalid value \"\"; give absolute paths"},
       }) {
    const auto config = node.Load(bad.flags, bad.file);
    ASSERT_FALSE(config.ok()) << bad.name;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.message)) << bad.name;
  }
}

}  // namespace
}  // namespace kipt::agent
