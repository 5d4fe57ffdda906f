// SPDX-License-Identifier: Apache-2.0
//
// --color: on a terminal and in a pipe, with the environment's wishes.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

// What `argv` prints where its standard output is a terminal.
std::string OnTerminal(std::vector<std::string> argv) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, nullptr);
  if (child == 0) {
    execvp(words[0], words.data());
    _exit(127);
  }
  EXPECT_GT(child, 0);
  std::string out;
  char piece[4096];
  // EIO: the program has ended.
  for (ssize_t got = 0; (got = read(master, piece, sizeof(piece))) > 0;) {
    out.append(piece, static_cast<size_t>(got));
  }
  close(master);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 127) << out;
  return absl::StrReplaceAll(out, {{"\r\n", "\n"}});
}

struct Row {
  std::string name;
  bool terminal;
  std::vector<std::string> variables;
  std::vector<std::string> flags;
  bool colored;
};
const Row kRows[] = {
    {"auto colours on a terminal", true, {}, {}, true},
    {"auto does not in a pipe", false, {}, {"--color=auto"}, false},
    {"NO_COLOR switches it off", true, {"NO_COLOR=1"}, {}, false},
    {"an empty NO_COLOR does not", true, {"NO_COLOR="}, {}, true},
    {"a dumb terminal has no colours", true, {"TERM=dumb"}, {}, false},
    {"always colours in a pipe", false, {}, {"--color=always"}, true},
    {"always is absolute", true, {"NO_COLOR=1", "TERM=dumb"}, {"--color=always"}, true},
    {"never is absolute", true, {}, {"--color=never"}, false},
    {"JSON has no colours", true, {}, {"--color=always", "--output=json"}, false},
};

class ColorsTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Output({"iptables-nft", "-t", "nat", "-N", "KUBE-MARK-DROP"});
    Output({"iptables-nft", "-t", "nat", "-A", "PREROUTING", "-m", "comment", "--comment",
            "\x1b[31mred", "-j", "KUBE-MARK-DROP"});
  }

  static std::string Print(const Row& row, const std::vector<std::string>& command) {
    std::vector<std::string> argv = {"env", "-u", "NO_COLOR", "TERM=xterm"};
    argv.insert(argv.end(), row.variables.begin(), row.variables.end());
    argv.push_back(AgentProgram());
    argv.insert(argv.end(), command.begin(), command.end());
    argv.insert(argv.end(), row.flags.begin(), row.flags.end());
    return row.terminal ? OnTerminal(argv) : RunProgram(argv).out;
  }
};

TEST_F(ColorsTest, FollowTheFlagThenTheEnvironmentThenTheTerminal) {
  struct Colored {
    std::vector<std::string> command;
    std::string text;
  };
  for (const Colored& each :
       std::vector<Colored>{{{"plan"}, "\x1b[32m  + :KUBE-FIREWALL"},
                            {{"status"}, "\x1b[33mip: "},
                            {{"audit"}, "\x1b[31merror\x1b[0m "},
                            {{"explain", "nat/KUBE-MARK-DROP"}, "\x1b[1min short\x1b[0m\n"}}) {
    for (const Row& row : kRows) {
      SCOPED_TRACE(absl::StrCat(row.name, ": ", absl::StrJoin(each.command, " ")));
      const std::string out = Print(row, each.command);
      EXPECT_THAT(out, HasSubstr("KUBE-"));
      if (row.colored) {
        EXPECT_THAT(out, HasSubstr(each.text));
      } else {
        EXPECT_THAT(out, Not(HasSubstr("\x1b")));
      }
    }
  }
}

TEST_F(ColorsTest, AddNothingButColoursAndLeaveForeignBytesEscaped) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"audit"}, {"explain", "nat/KUBE-MARK-DROP"}}) {
    const std::string plain = Print({"", false, {}, {"--color=never"}, false}, command);
    const std::string colored = Print({"", false, {}, {"--color=always"}, true}, command);
    EXPECT_THAT(plain, HasSubstr("\\x1b[31mred"));
    EXPECT_EQ(std::regex_replace(colored, std::regex("\x1b\\[(0|1|31|32|33)m"), ""), plain);
  }
}

}  // namespace
}  // namespace kipt::testing
