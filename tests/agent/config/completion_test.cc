// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/command_line.h"
#include "agent/config/load_config.h"
#include "agent/config/settings.h"
#include "deploy/debian/manual_page.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using Words = std::vector<std::string>;

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

// Renamed flags and values must no longer be offered.
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

TEST(AgentCompletionTest, EveryFlagWithNamedValuesOffersThem) {
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

TEST(CompletionTest, RefusesAShellThatItDoesNotKnow) {
  const auto script = Completion(AgentCompletion(), "fish");
  EXPECT_EQ(script.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(script.status().message(), AllOf(HasSubstr("\"fish\""), HasSubstr("bash and zsh")));
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

struct Case {
  std::string name;
  std::string typed;
  Words bash;
  Words zsh;
};
void PrintTo(const Case& row, std::ostream* out) { *out << row.name << " \"" << row.typed << "\""; }

// Readline replaces what follows the last equals sign or colon, zsh whole words and parts of lists.
const Case kCases[] = {
    {"ACommand", "kube-iptables-agent pl", List("plan"), List("plan")},
    {"NoCommandTwice", "kube-iptables-agent plan sy", List(), List()},
    {"AFlag", "kube-iptables-agent plan --ou", List("--output="), List("--output")},
    {"NoFlagOfAnotherCommand", "kube-iptables-agent status --al", List(), List()},
    {"AValueAfterAnEqualsSign", "kube-iptables-agent --stale-chains=", List("keep", "retire"),
     List("keep", "retire")},
    {"AValueInTheNextWord", "kube-iptables-agent plan --iptables-mode le", List("legacy"),
     List("legacy")},
    {"ABooleanTakesNoWord", "kube-iptables-agent --observe pla", List("plan"), List("plan")},
    {"ALaterOneOfAList", "kube-iptables-agent --ip-families=ipv4,ipv",
     List("ipv4,ipv4", "ipv4,ipv6"), List("ipv6")},
    {"AGate", "kube-iptables-agent --feature-gates=IPT",
     List("IPTablesOwnershipCleanup=true", "IPTablesOwnershipCleanup=false"),
     List("IPTablesOwnershipCleanup=true", "IPTablesOwnershipCleanup=false")},
    {"AGatesValue", "kube-iptables-agent --feature-gates=IPTablesOwnershipCleanup=t", List("true"),
     List("IPTablesOwnershipCleanup=true")},
    {"OneArgumentOnly", "kube-iptables-agent explain nat/KUBE-MARK-MASQ nat/", List(), List()},
    {"AFile", "kube-iptables-agent --config=/etc/os-rel", List("/etc/os-release"),
     List("os-release")},
    {"ADirectory", "kube-iptables-agent --host-root /usr/sb", List("/usr/sbin"), List("sbin")},
    {"OurChain", "kube-iptables-agent explain nat/KUBELET-P", List("nat/KUBELET-POSTROUTING"),
     List("nat/KUBELET-POSTROUTING")},
    {"NothingForANumber", "kube-iptables-agent --iptables-drop-bit=", List(), List()},
};

class ShellsTest : public ::testing::TestWithParam<Case> {
 protected:
  // The scripts run the program by its name.
  ShellsTest() {
    setenv("PATH", absl::StrCat(KIPT_PROGRAM_DIR, ":", getenv("PATH")).c_str(), /*replace=*/1);
  }

  std::string Script(const std::string& shell) const {
    tree_.Write(shell, *Completion(AgentCompletion(), shell));
    return tree_.Path(shell);
  }

  static Words Lines(const testing::ProgramResult& result) {
    EXPECT_EQ(result.err, "");
    Words words = absl::StrSplit(result.out, '\n', absl::SkipEmpty());
    return words;
  }

  TemporaryTree tree_;
};

TEST_P(ShellsTest, BashOffersWhatFits) {
  const testing::ProgramResult result = testing::RunProgram(
      {"bash", "--norc", "-c",
       R"(source "$1"; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
          complete -p kube-iptables-agent | grep -q -- '-F _kube_iptables_agent ' || exit 3
          _kube_iptables_agent; printf '%s\n' "${COMPREPLY[@]}")",
       "bash", Script("bash"), GetParam().typed});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(Lines(result), UnorderedElementsAreArray(GetParam().bash));
}

TEST_P(ShellsTest, ZshOffersWhatFits) {
  const testing::ProgramResult result =
      testing::RunProgram({"zsh", "-f", KIPT_ZSH_CANDIDATES, Script("zsh"), GetParam().typed});
  EXPECT_EQ(result.exit_code, GetParam().zsh.empty() ? 1 : 0) << result;
  EXPECT_THAT(Lines(result), UnorderedElementsAreArray(GetParam().zsh));
}

INSTANTIATE_TEST_SUITE_P(Lines, ShellsTest, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return row.param.name; });

// Without bash-completion's help, where "=" breaks no words, the flag comes back with its value.
TEST_F(ShellsTest, BashWhereEqualsSignsBreakNoWords) {
  const testing::ProgramResult result =
      testing::RunProgram({"bash", "--norc", "-c",
                           R"(source "$1"; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \t\n'
          _kube_iptables_agent; printf '%s\n' "${COMPREPLY[@]}")",
                           "bash", Script("bash"), "kube-iptables-agent --watch=p"});
  EXPECT_EQ(result.out, "--watch=poll\n") << result;
}

}  // namespace
}  // namespace kipt::agent
