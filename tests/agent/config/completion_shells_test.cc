// SPDX-License-Identifier: Apache-2.0
//
// What bash and zsh themselves make of the completions, as when somebody presses Tab.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/completion.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using ::testing::UnorderedElementsAreArray;
using Words = std::vector<std::string>;

struct Case {
  std::string name;
  std::string typed;
  Words bash;
  Words zsh;
};
void PrintTo(const Case& row, std::ostream* out) { *out << row.name << " \"" << row.typed << "\""; }

// Readline replaces what follows the last equals sign or colon, zsh whole words and parts of lists.
const Case kCases[] = {
    {"ACommand", "kube-iptables-agent pl", {"plan"}, {"plan"}},
    {"ACommandBehindAFlagAndItsValue",
     "kube-iptables-agent --output json ga",
     {"gates"},
     {"gates"}},
    {"NoCommandTwice", "kube-iptables-agent plan sy", {}, {}},
    {"AFlag", "kube-iptables-agent plan --ou", {"--output="}, {"--output"}},
    {"AFlagOfItsCommand",
     "kube-iptables-agent audit --al",
     {"--all-netns", "--allow="},
     {"--all-netns", "--allow"}},
    {"NoFlagOfAnotherCommand", "kube-iptables-agent status --al", {}, {}},
    {"AValueBehindAnEqualsSign",
     "kube-iptables-agent --stale-chains=",
     {"keep", "retire"},
     {"keep", "retire"}},
    {"AValueInTheNextWord", "kube-iptables-agent plan --iptables-mode le", {"legacy"}, {"legacy"}},
    {"ABoolean", "kube-iptables-agent retire --yes=", {"true", "false"}, {"true", "false"}},
    {"ABooleanTakesNoWord", "kube-iptables-agent --observe pla", {"plan"}, {"plan"}},
    {"ALaterOneOfAList",
     "kube-iptables-agent --ip-families=ipv4,ipv",
     {"ipv4,ipv4", "ipv4,ipv6"},
     {"ipv6"}},
    {"AGate",
     "kube-iptables-agent --feature-gates=IPT",
     {"IPTablesOwnershipCleanup=true", "IPTablesOwnershipCleanup=false"},
     {"IPTablesOwnershipCleanup=true", "IPTablesOwnershipCleanup=false"}},
    {"AGatesValue",
     "kube-iptables-agent --feature-gates=IPTablesOwnershipCleanup=t",
     {"true"},
     {"IPTablesOwnershipCleanup=true"}},
    {"AnArgument",
     "kube-iptables-agent explain filter/KUBE-F",
     {"filter/KUBE-FIREWALL"},
     {"filter/KUBE-FIREWALL"}},
    {"OneArgumentOnly", "kube-iptables-agent explain nat/KUBE-MARK-MASQ nat/", {}, {}},
    {"AFile", "kube-iptables-agent --config=/etc/os-rel", {"/etc/os-release"}, {"os-release"}},
    {"ADirectory", "kube-iptables-agent --host-root /usr/sb", {"/usr/sbin"}, {"sbin"}},
    {"OurGate",
     "kube-iptables-agent --feature-gates=Conn",
     {"ConnLabelMarking=true", "ConnLabelMarking=false"},
     {"ConnLabelMarking=true", "ConnLabelMarking=false"}},
    {"OurChain",
     "kube-iptables-agent explain nat/KUBELET-P",
     {"nat/KUBELET-POSTROUTING"},
     {"nat/KUBELET-POSTROUTING"}},
    {"ALabelFlag",
     "kube-iptables-agent --iptables-drop-l",
     {"--iptables-drop-label="},
     {"--iptables-drop-label"}},
    {"NothingForANumber", "kube-iptables-agent --iptables-drop-bit=", {}, {}},
    {"NothingForAnUnknownFlag", "kube-iptables-agent --nope=pl", {}, {}},
    {"NothingForALabel", "kube-iptables-agent --iptables-drop-label=", {}, {}},
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

  testing::TemporaryTree tree_;
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
