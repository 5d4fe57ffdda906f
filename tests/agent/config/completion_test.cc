// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/command_line.h"
#include "agent/config/load_config.h"
#include "agent/config/settings.h"
#include "deploy/debian/manual_page.h"

namespace kipt::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

const CompletionFlag* FlagOf(const CompletionSpec& spec, absl::string_view name) {
  for (const CompletionFlag& flag : spec.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

TEST(AgentCompletionTest, HasEveryCommandAndEveryFlag) {
  const CompletionSpec spec = AgentCompletion();
  for (const CommandRow& row : kCommandTable) {
    EXPECT_THAT(spec.commands, Contains(AllOf(Field(&CompletionCommand::name, row.name),
                                              Field(&CompletionCommand::argument, row.argument))));
  }
  for (const Setting& row : kSettings) {
    const CompletionFlag* const flag = FlagOf(spec, row.flag);
    ASSERT_NE(flag, nullptr) << row.flag;
    EXPECT_EQ(flag->is_bool, row.stands_alone()) << row.flag;
    EXPECT_EQ(flag->commands.empty(), row.only_for.empty()) << row.flag;
  }
}

// So that a value which was renamed, or a flag which was, is not offered any longer.
TEST(AgentCompletionTest, OffersOnlyWhatTheProgramAccepts) {
  int values = 0;
  for (const CompletionFlag& flag : AgentCompletion().flags) {
    for (const std::string& word : flag.values.words) {
      const std::string given = absl::StrCat("--", flag.name, "=", word);
      // "dot" is of audit only, "npd" of check, "svg" of marks.
      const std::string command = !flag.commands.empty() ? flag.commands.front()
                                  : word == "npd"        ? "check"
                                  : word == "svg"        ? "marks"
                                                         : "audit";
      std::vector<std::string> arguments = {command, given};
      if (command == "explain") arguments.insert(arguments.begin() + 1, "nat/X");
      const auto line = ParseCommandLine(arguments);
      ASSERT_TRUE(line.ok()) << line.status();
      const auto config = LoadConfig(line->flags, {.default_config_path = "/nonexistent"});
      EXPECT_TRUE(config.ok()) << given << ": " << config.status();
      ++values;
    }
  }
  EXPECT_GT(values, 30);
}

TEST(AgentCompletionTest, SaysOfEveryFlagWithNamedValuesWhichTheyAre) {
  const CompletionSpec spec = AgentCompletion();
  for (const CompletionFlag& flag : spec.flags) {
    using Kind = CompletionValues::Kind;
    if (flag.type == "file") {
      EXPECT_EQ(flag.values.kind, Kind::kFile) << flag.name;
    }
    if (absl::StartsWith(flag.type, "directory")) {
      EXPECT_EQ(flag.values.kind, Kind::kDirectory) << flag.name;
    }
    const bool list = absl::EndsWith(flag.type, ",...") && flag.name != "vmodule";
    EXPECT_EQ(flag.values.list, list || flag.name == "feature-gates" || flag.name == "ip-families")
        << flag.name;
    // "keep or retire: ..." is such a flag's help.
    if (absl::StrContains(flag.help.substr(0, 25), " or ") && flag.name != "help") {
      EXPECT_EQ(flag.values.kind, Kind::kWords) << flag.name << ": " << flag.help;
    }
  }
}

TEST(AgentCompletionTest, OffersKubeletsChainsToExplain) {
  const CompletionSpec spec = AgentCompletion();
  for (const CompletionCommand& command : spec.commands) {
    if (command.name != "explain") continue;
    EXPECT_THAT(command.argument_values.words,
                AllOf(Contains("nat/KUBE-MARK-MASQ"), Contains("filter/KUBE-FIREWALL"),
                      Contains("mangle/KUBE-IPTABLES-HINT")));
  }
}

TEST(CompletionTest, RefusesAShellThatItDoesNotKnow) {
  const auto script = Completion(AgentCompletion(), "fish");
  EXPECT_EQ(script.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(script.status().message(), AllOf(HasSubstr("\"fish\""), HasSubstr("bash and zsh")));
}

TEST(CompletionTest, IsWrittenByTheCommand) {
  const auto line = ParseCommandLine({"completion", "zsh"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->command, Command::kCompletion);
  EXPECT_EQ(line->argument, "zsh");
  EXPECT_THAT(ParseCommandLine({"completion"}).status().message(),
              HasSubstr("needs bash|zsh after it, as in completion bash"));
}

// ---- the manual page, of the same description ----

CompletionSpec SmallSpec() {
  return {.program = "program",
          .commands = {{.name = "look", .help = "looks; exit status 2"},
                       {.name = "name", .help = "names", .argument = "THING"}},
          .default_command = "look",
          .flags = {{.name = "all", .is_bool = true, .help = "All. Of it."},
                    {.name = "back\\slash",
                     .shorthand = "b",
                     .type = "file",
                     .help = ".dots-first",
                     .commands = {"name"}}}};
}

TEST(ManualPageTest, ListsCommandsAndFlags) {
  EXPECT_EQ(
      packages::ManualPage(SmallSpec(), ".SH A\n%COMMANDS%\n.SH B\n%OPTIONS%\n"),
      ".SH A\n"
      ".TP\n\\fBlook\\fR\nlooks;\nexit status 2\n"
      ".TP\n\\fBname\\fR \\fITHING\\fR\nnames\n"
      ".SH B\n"
      ".TP\n\\fB\\-\\-all\\fR\nAll.\nOf it.\n"
      ".TP\n\\fB\\-b\\fR, \\fB\\-\\-back\\eslash\\fR=\\fIfile\\fR (name)\n\\&.dots\\-first\n");
}

TEST(ManualPageTest, HasEveryFlagOfTheAgent) {
  const std::string page = packages::ManualPage(AgentCompletion(), "%COMMANDS%\n%OPTIONS%\n");
  for (const Setting& row : kSettings) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("\\fB", packages::Roff(absl::StrCat("--", row.flag)),
                                             "\\fR")));
  }
  EXPECT_THAT(page, HasSubstr("\n.br\nIPTablesOwnershipCleanup=true|false (BETA"));
  EXPECT_THAT(page, Not(HasSubstr("%")));
}

}  // namespace
}  // namespace kipt::agent
