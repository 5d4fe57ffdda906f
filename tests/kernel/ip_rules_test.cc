// SPDX-License-Identifier: Apache-2.0
//
// Routing rules of real namespaces, against what `ip rule` prints of them.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/detect/routing.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::FwmarkRule;
using agent::ReadFwmarkRules;
using netlink::Family;

void Add(const std::string& family, const std::string& rule) {
  std::vector<std::string> arguments = {"ip", family, "rule", "add"};
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(rule, ' '))) {
    arguments.push_back(word);
  }
  const ProgramResult result = RunProgram(arguments);
  ASSERT_EQ(result.exit_code, 0) << result << rule;
}

// The lines with a fwmark, with a space after the priority instead of a tab.
std::vector<std::string> Shown(const std::string& family) {
  std::vector<std::string> lines;
  const ProgramResult result = RunProgram({"ip", family, "rule", "show"});
  EXPECT_EQ(result.exit_code, 0) << result;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(result.out, '\n'))) {
    if (!absl::StrContains(line, " fwmark ")) continue;
    lines.push_back(absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(line), {{":\t", ": "}}));
  }
  return lines;
}

std::vector<FwmarkRule> Read() {
  absl::StatusOr<std::vector<FwmarkRule>> rules = ReadFwmarkRules();
  EXPECT_THAT(rules, IsOk());
  return rules.ok() ? *std::move(rules) : std::vector<FwmarkRule>{};
}

class IpRulesTest : public NetnsTest {};

TEST_F(IpRulesTest, SpellsThemAsIpRuleDoes) {
  const std::vector<std::string> rules = {
      "fwmark 0x4000/0x4000 table 100",
      "fwmark 1 table main",
      "fwmark 0x1/0x1 table local pref 10",
      "fwmark 0/0xff table default pref 11",
      "not fwmark 0x20000/0xff0000 table 51820",
      "from all to all fwmark 0x8000/0x8000 lookup 300",
      "fwmark 0x2/0x2 iif lo lookup 300",
      "fwmark 0x2/0x2 oif eth7 lookup 300",
      "fwmark 0x2/0x2 iif eth8 oif lo lookup 300",
      "fwmark 0x4/0x4 tos 0x10 lookup 300",
      "fwmark 0x4/0x4 ipproto tcp dport 80 lookup 300",
      "fwmark 0x4/0x4 ipproto udp sport 1-100 dport 53-54 lookup 300",
      "fwmark 0x4/0x4 uidrange 0-99 lookup 300",
      "fwmark 0x8/0x8 blackhole",
      "fwmark 0x8/0x8 prohibit",
      "fwmark 0x8/0x8 unreachable",
      "fwmark 0x8/0x8 pref 50 goto 60",
      "fwmark 0x9/0x9 lookup main suppress_prefixlength 0",
      "fwmark 0xffffffff lookup 4294967295",
  };
  for (const char* family : {"-4", "-6"}) {
    for (const std::string& rule : rules) Add(family, rule);
  }
  Add("-4", "from 10.1.0.0/16 to 10.2.3.4 fwmark 0x10/0x10 table 5");
  Add("-6", "from fd00::/8 to fd00::1 fwmark 0x10/0x10 table 5");
  const std::vector<FwmarkRule> read = Read();
  for (const Family family : netlink::kFamilies) {
    SCOPED_TRACE(netlink::FamilyName(family));
    std::vector<std::string> texts;
    for (const FwmarkRule& rule : read) {
      if (rule.family == family) texts.push_back(rule.text);
    }
    EXPECT_THAT(texts, SizeIs(rules.size() + 1));
    EXPECT_EQ(texts, Shown(family == Family::kIPv4 ? "-4" : "-6"));
  }
}

// More than one piece of a dump.
TEST_F(IpRulesTest, ReadsThousands) {
  std::string batch;
  for (int i = 1; i <= 3000; ++i) {
    const std::string number = std::to_string(i);
    batch += "rule add fwmark " + number + "/0xfff table 7 pref " + number + "\n";
  }
  const ProgramResult result = RunProgram({"ip", "-batch", "-"}, batch);
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<FwmarkRule> read = Read();
  ASSERT_THAT(read, SizeIs(3000));
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].mark, i + 1);
    EXPECT_EQ(read[i].mask, 0xfffU);
  }
}

}  // namespace
}  // namespace kipt::testing
