// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/expected_rules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::expected_rules_test {
namespace {

const netlink::ChainId kInput = {netlink::Family::kIPv4, netlink::Table::kFilter, "INPUT"};
const netlink::ChainId kInput6 = {netlink::Family::kIPv6, netlink::Table::kFilter, "INPUT"};
const netlink::ChainId kOutput = {netlink::Family::kIPv4, netlink::Table::kFilter, "OUTPUT"};

TEST(ExpectedRulesTest, CoverAChainARuleOrABeginning) {
  struct Row {
    std::string line;
    bool v4, v6, other_text, longer_text;
  };
  for (const Row& row : {
           Row{"filter/INPUT", true, true, true, true},
           Row{"ip filter/INPUT", true, false, true, true},
           Row{"ip6 filter/INPUT", false, true, false, false},
           Row{"filter/INPUT -s 10.0.0.0/8 -j DROP", true, true, false, false},
           Row{"  filter/INPUT   -s 10.0.0.0/8 -j DROP \r", true, true, false, false},
           Row{"filter/INPUT -A INPUT -s 10.0.0.0/8 -j DROP", true, true, false, false},
           Row{"filter/INPUT -s 10.0.0.0/8*", true, true, false, true},
           Row{"nat/INPUT", false, false, false, false},
           Row{"raw/PREROUTING", false, false, false, false},
       }) {
    SCOPED_TRACE(row.line);
    const auto rules = ParseExpectedRules("# a comment\n\n \t" + row.line + " \n");
    ASSERT_THAT(rules, IsOk());
    ASSERT_THAT(*rules, SizeIs(1));
    const ExpectedRule& rule = rules->front();
    EXPECT_EQ(rule.Covers(kInput, "-s 10.0.0.0/8 -j DROP"), row.v4);
    EXPECT_EQ(rule.Covers(kInput6, "-s 10.0.0.0/8 -j DROP"), row.v6);
    EXPECT_EQ(rule.Covers(kInput, "-j REJECT"), row.other_text);
    EXPECT_EQ(rule.Covers(kInput, "-s 10.0.0.0/8 -p tcp -j DROP"), row.longer_text);
    EXPECT_FALSE(rule.Covers(kOutput, "-s 10.0.0.0/8 -j DROP"));
  }
}

TEST(ExpectedRulesTest, OthersAreRefusedWithTheirLine) {
  for (const char* line : {"INPUT", "filter/", "/INPUT", "filters/INPUT", "-j DROP", "ip6", "ip",
                           "inet filter/INPUT", "ip ip6 filter/INPUT", "\x1b[31m"}) {
    EXPECT_THAT(ParseExpectedRules(absl::StrCat("filter/INPUT\n", line)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: ")))
        << line;
  }
  std::string many;
  for (int i = 0; i <= 1000; ++i) absl::StrAppend(&many, "filter/C", i, "\n");
  EXPECT_THAT(ParseExpectedRules(many),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1001: ")));
}

}  // namespace
}  // namespace kipt::agent::expected_rules_test
