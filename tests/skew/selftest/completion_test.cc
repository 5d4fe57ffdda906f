// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/skew/options.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using agent::CompletionCommand;
using agent::CompletionFlag;
using agent::CompletionValues;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

CompletionFlag FlagOf(const std::string& name, const std::string& command) {
  for (const CompletionFlag& flag : SkewCompletion().flags) {
    const bool here = flag.commands.empty() || std::find(flag.commands.begin(), flag.commands.end(),
                                                         command) != flag.commands.end();
    if (flag.name == name && here) return flag;
  }
  ADD_FAILURE() << command << " has no --" << name;
  return {};
}

TEST(SkewCompletionTest, HasTheCommands) {
  const auto commands = SkewCompletion().commands;
  std::vector<std::string> names;
  for (const CompletionCommand& command : commands) names.push_back(command.name);
  EXPECT_THAT(names, ElementsAre("run", "list", "advise", "completion", "version"));
  EXPECT_EQ(SkewCompletion().default_command, "run");
  EXPECT_THAT(commands,
              Contains(AllOf(Field(&CompletionCommand::name, "completion"),
                             Field(&CompletionCommand::argument_values,
                                   Field(&CompletionValues::words, ElementsAre("bash", "zsh"))))));
}

TEST(SkewCompletionTest, KnowsWhichCommandHasAFlagAndWhatItTakes) {
  EXPECT_THAT(FlagOf("full", "run").commands, ElementsAre("run", "list"));
  EXPECT_TRUE(FlagOf("full", "run").is_bool);
  EXPECT_THAT(FlagOf("from", "advise").commands, ElementsAre("advise"));
  EXPECT_THAT(FlagOf("help", "version").commands, IsEmpty());
  EXPECT_THAT(FlagOf("output", "advise").values.words, ElementsAre("text", "json"));
  EXPECT_EQ(FlagOf("html", "run").values.kind, CompletionValues::Kind::kFile);
  EXPECT_EQ(FlagOf("iptables-chroots", "run").values.kind, CompletionValues::Kind::kDirectory);
  EXPECT_EQ(FlagOf("jobs", "run").type, "int");
}

TEST(SkewCompletionTest, OffersOnlyWhatTheProgramAccepts) {
  int values = 0;
  for (const CompletionFlag& flag : SkewCompletion().flags) {
    const std::string command = flag.commands.empty() ? "run" : flag.commands.front();
    for (const std::string& word : flag.values.words) {
      std::vector<std::string> arguments = {command, absl::StrCat("--", flag.name, "=", word)};
      if (command == "advise") {
        arguments.insert(arguments.end(), {"--from=1.26", "--to=1.27"});
      }
      EXPECT_TRUE(ParseOptions("skew", arguments).ok()) << flag.name << " " << word;
      ++values;
    }
  }
  EXPECT_GT(values, 15);
}

TEST(SkewCompletionTest, BashOffersWhatFits) {
  const auto options = ParseOptions("skew", {"completion", "bash"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->command, Options::Command::kCompletion);
  const auto result = testing::RunProgram(
      {"bash", "--norc", "-c", absl::StrCat("PATH=" KIPT_PROGRAM_DIR ":$PATH\n", options->help, R"(
          COMP_LINE='kube-iptables-skew --paths=boot,fl' COMP_POINT=34 COMP_WORDBREAKS='='
          _kube_iptables_skew; printf '%s\n' "${COMPREPLY[@]}")")});
  EXPECT_EQ(result.out, "boot,flush\n") << result;
}

}  // namespace
}  // namespace kipt::skew
