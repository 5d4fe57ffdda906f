// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/expected_rules.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// Each rule of another program is compared with each of them.
constexpr size_t kMostEntries = 1000;
// Also those that the agent does not read, because other lists have them.
constexpr absl::string_view kIptablesTables[] = {"filter", "mangle", "nat", "raw", "security"};

}  // namespace

absl::string_view ForeignRulesPolicyName(ForeignRulesPolicy policy) {
  constexpr absl::string_view kNames[] = {"auto", "report", "ignore"};
  return kNames[static_cast<size_t>(policy)];
}

bool ExpectedRule::CoversChain(const netlink::ChainId& id) const {
  return (!family || *family == id.family) && table == netlink::TableName(id.table) &&
         chain == id.name;
}

bool ExpectedRule::Covers(const netlink::ChainId& id, absl::string_view rule) const {
  if (!CoversChain(id)) return false;
  return text.empty() || (prefix ? absl::StartsWith(rule, text) : rule == text);
}

absl::StatusOr<std::vector<ExpectedRule>> ParseExpectedRules(absl::string_view text) {
  std::vector<ExpectedRule> rules;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const auto wrong = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", what, ": ", QuoteForMessage(line)));
    };
    ExpectedRule rule;
    absl::string_view rest = line;
    for (const netlink::Family family : netlink::kFamilies) {
      if (absl::ConsumePrefix(&rest, absl::StrCat(netlink::FamilyName(family), " "))) {
        rule.family = family;
        break;
      }
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(absl::StripLeadingAsciiWhitespace(rest), absl::MaxSplits(' ', 1));
    const std::pair<absl::string_view, absl::string_view> place =
        absl::StrSplit(parts.first, absl::MaxSplits('/', 1));
    rule.table = std::string(place.first);
    rule.chain = std::string(place.second);
    absl::string_view spelled = absl::StripAsciiWhitespace(parts.second);
    absl::ConsumePrefix(&spelled, absl::StrCat("-A ", rule.chain, " "));
    rule.prefix = absl::ConsumeSuffix(&spelled, "*");
    rule.text = std::string(spelled);
    if (rule.chain.empty()) return wrong("expected [ip|ip6] TABLE/CHAIN [RULE]");
    if (!absl::c_linear_search(kIptablesTables, rule.table)) return wrong("no such table");
    if (rules.size() == kMostEntries) return wrong("more than 1,000 entries");
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace kipt::agent
