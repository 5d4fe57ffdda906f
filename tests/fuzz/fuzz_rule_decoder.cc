// SPDX-License-Identifier: Apache-2.0
//
// The decoder of rules on any bytes, and what it promises about what it makes of them: a Rule is
// one that we could write, and reads back as itself; two ways to the same facts agree; every text
// is one line's.
#include <cstdint>
#include <string>

#include "netlink/rule_codec.h"
#include "netlink/survey.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/wire_messages.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::DescribedRule;
using netlink::Family;
using netlink::ObservedRule;
using netlink::Table;

// Offset of nfgen_family, linux/netfilter/nfnetlink.h, and NFPROTO_IPV6.
constexpr size_t kFamilyOffset = 16;
constexpr uint8_t kIpv6 = 10;

// Whoever decides about a chain looks at the one, whoever looks at all chains at the other.
void CheckAgreement(const ObservedRule& rule, const DescribedRule& described) {
  KIPT_REQUIRE(MarksTested(rule) == described.content.marks_tested);
  KIPT_REQUIRE(MarksSet(rule) == described.content.marks_set);
  KIPT_REQUIRE(LabelsSet(rule) == described.content.labels_set);
  const std::string* jump = JumpTarget(rule);
  KIPT_REQUIRE((jump != nullptr) == described.content.jump.has_value());
  KIPT_REQUIRE(jump == nullptr || *jump == *described.content.jump);
  KIPT_REQUIRE(rule.counters == described.counters);
  const netlink::OpaqueRule* opaque = rule.opaque();
  const bool unconditional =
      opaque != nullptr ? opaque->unconditional : IsUnconditional(*rule.rule());
  KIPT_REQUIRE(unconditional == described.content.unconditional);
  const ObservedRule shown{.handle = rule.handle, .content = described.content};
  KIPT_REQUIRE(IsUnconditionalTerminal(rule) == IsUnconditionalTerminal(shown));
  KIPT_REQUIRE(MayDecide(rule) == MayDecide(shown));
}

}  // namespace

void FuzzRuleDecoder(FuzzBytes message) {
  const absl::StatusOr<DescribedRule> described = netlink::DescribeRule(message);
  const absl::StatusOr<ObservedRule> rule = netlink::DecodeRule(message);
  KIPT_REQUIRE(!rule.ok() || described.ok());
  if (!described.ok()) KIPT_REQUIRE_REASON(described.status());
  if (described.ok()) KIPT_REQUIRE(described->content.text.find('\0') == std::string::npos);
  if (!rule.ok()) {
    KIPT_REQUIRE_REASON(rule.status());
    return;
  }
  CheckAgreement(*rule, *described);
  const Family family = message[kFamilyOffset] == kIpv6 ? Family::kIPv6 : Family::kIPv4;
  KIPT_REQUIRE(ToString(family, *rule).find('\0') == std::string::npos);
  if (rule->rule() == nullptr) return;

  const ChainId chain{.family = family, .table = Table::kNat, .name = "FUZZ"};
  const auto sent = RuleOnTheWire(chain, *rule->rule());
  KIPT_REQUIRE(sent.has_value());
  const absl::StatusOr<ObservedRule> again = netlink::DecodeRule(*sent);
  KIPT_REQUIRE(again.ok());
  KIPT_REQUIRE(again->content == rule->content);
}

}  // namespace kipt::testing
