// SPDX-License-Identifier: Apache-2.0
//
// The Debian package's configuration file, which its manual page shows, agrees with the program.
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/load_config.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using Words = std::vector<std::string>;

std::string ReadDebianFile(const std::string& name) {
  return FileText(KIPT_DEPLOY_DIR "/debian/" + name);
}

// As the decoder itself lists them, in the message about one that it does not know.
Words Fields() {
  const auto status = ParseConfigFile("f",
                                      "apiVersion: kube-iptables-agent/v1alpha1\n"
                                      "kind: KubeIPTablesAgentConfiguration\n"
                                      "noSuchField: 1\n")
                          .status();
  const std::string message(status.message());
  const std::string before = "KubeIPTablesAgentConfiguration has ";
  const size_t at = message.find(before);
  EXPECT_NE(at, std::string::npos) << message;
  return absl::StrSplit(message.substr(at + before.size()), ", ");
}

// The fields in `text`, including those that are commented out.
std::string Uncommented(const std::string& text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    // Prose has one blank after the sign, and a gate has two.
    if (std::regex_search(std::string(line),
                          std::regex("^#([a-zA-Z]+:|  [A-Za-z]+: (true|false)$)"))) {
      absl::ConsumePrefix(&line, "#");
    }
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

// What the group of `pattern` matches in `text`, each time.
Words Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return {std::sregex_token_iterator(text.begin(), text.end(), regex, 1), {}};
}

Config Defaults() { return *LoadConfig({}, {.default_config_path = "/nonexistent"}); }

Config Load(const std::string& yaml) {
  const TemporaryTree tree;
  tree.Write("config.yaml", yaml);
  const auto config = LoadConfig({.config = tree.Path("config.yaml")});
  EXPECT_TRUE(config.ok()) << config.status();
  Config result = config.ok() ? *config : Defaults();
  result.config_file.clear();
  return result;
}

TEST(PackagedConfigTest, ObservesAndLeavesTheRestAtItsDefault) {
  Config expected = Defaults();
  ASSERT_FALSE(expected.observe);
  expected.observe = true;
  EXPECT_EQ(Load(ReadDebianFile("config.yaml")), expected);
}

TEST(PackagedConfigTest, NamesEveryField) {
  EXPECT_THAT(Fields(), SizeIs(::testing::Gt(15U)));
  EXPECT_THAT(Matches("\n" + Uncommented(ReadDebianFile("config.yaml")), "\n([a-zA-Z]+):"),
              UnorderedElementsAreArray(Fields()));
}

TEST(PackagedConfigTest, ShowsTheDefaultsInItsComments) {
  const std::string text = ReadDebianFile("config.yaml");
  Config commented = Load(text);
  // What depends on the node: the first place of several.
  commented.cni_conf_dirs = {"/etc/cni/net.d"};
  EXPECT_EQ(ToString(Load(Uncommented(text))), ToString(commented));
}

TEST(PackagedConfigTest, NamesTheFieldsThatNeedARestart) {
  Words marked;
  for (const std::string& paragraph :
       Words(absl::StrSplit(ReadDebianFile("config.yaml"), "\n\n"))) {
    if (!absl::StrContains(paragraph, "Changes need a restart.")) continue;
    const Words fields = Matches("\n" + Uncommented(paragraph), "\n([a-zA-Z]+):");
    marked.insert(marked.end(), fields.begin(), fields.end());
  }
  Config other = Defaults();
  other.iptables_mode = IptablesMode::kLegacy;
  other.watch = netlink::WatchMode::kPoll;
  other.healthz_bind_address = other.metrics_bind_address = "";
  other.incidents_file = "";
  other.observe = true;
  other.iptables_sync_period = absl::Hours(1);
  Words needed;
  for (const std::string& line : WhatNeedsARestart(Defaults(), other)) {
    needed.push_back(line.substr(0, line.find(':')));
  }
  EXPECT_THAT(marked, ElementsAreArray(needed));
}

}  // namespace
}  // namespace kipt::agent
