// SPDX-License-Identifier: Apache-2.0
//
// The labels of ConnLabelMarking in the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "tests/agent/config/config_files.h"

namespace kipt::agent::conn_label_settings_test {
namespace {

using ::testing::HasSubstr;

constexpr char kOn[] = "ConnLabelMarking=true";

struct LabelCase {
  std::string name;
  Flags flags;
  std::string file = {};
  ConnLabels labels = {};
  std::vector<std::string> warnings = {};
};

TEST(ConnLabelSettingsTest, FlagsWinOverTheFileAndTheFileOverTheDefaults) {
  const LabelCase rows[] = {
      {"NothingGiven", {.feature_gates = {kOn}}},
      {"Flags",
       {.feature_gates = {kOn}, .iptables_masquerade_label = 0, .iptables_drop_label = 127},
       "",
       {.masquerade = 0, .drop = 127}},
      {"AFile",
       {.feature_gates = {kOn}},
       Agent("iptablesMasqueradeLabel: 3\niptablesDropLabel: 4\n"),
       {.masquerade = 3, .drop = 4}},
      {"AFlagOverAFile",
       {.feature_gates = {kOn}, .iptables_drop_label = 5},
       Agent("iptablesMasqueradeLabel: 3\niptablesDropLabel: 4\n"),
       {.masquerade = 3, .drop = 5}},
      {"EqualWhereTheGateIsOff",
       {.iptables_masquerade_label = 9, .iptables_drop_label = 9},
       "",
       {},
       {"--iptables-masquerade-label has no effect where ConnLabelMarking is off",
        "--iptables-drop-label has no effect where ConnLabelMarking is off"}},
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
    std::string file;
    std::string message;
  };
  const Row rows[] = {
      {"128",
       {.iptables_drop_label = 128},
       "",
       "invalid configuration: iptablesDropLabel (--iptables-drop-label) 128 must be between 0 and "
       "127, inclusive; found 128 (from the flag --iptables-drop-label)"},
      {"-1 in a file",
       {},
       Agent("iptablesMasqueradeLabel: -1\n"),
       "iptablesMasqueradeLabel (--iptables-masquerade-label) -1 must be between 0 and 127"},
      {"equal",
       {.feature_gates = {kOn}, .iptables_drop_label = 114},
       "",
       "iptables-masquerade-label and iptables-drop-label must be different; found 114 (the "
       "default) and 114 (from the flag --iptables-drop-label)"},
      {"kubelet's file",
       {.feature_gates = {kOn}},
       Kubelet("featureGates: {ConnLabelMarking: 1}\n"),
       "featureGates.ConnLabelMarking"},
  };
  const ConfigFiles node;
  for (const Row& row : rows) {
    const auto config = node.Load(row.flags, row.file);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << row.name;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(row.message)) << row.name;
  }
}

}  // namespace
}  // namespace kipt::agent::conn_label_settings_test
