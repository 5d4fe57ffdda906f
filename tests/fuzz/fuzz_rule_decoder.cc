// SPDX-License-Identifier: Apache-2.0
//
// The decoder of rules on any bytes, and what it promises about what it makes of them: a Rule is
// one that we could write, and reads back as itself; a survey reads the same; every text
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

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// Offset of nfgen_family, linux/netfilter/nfnetlink.h, and NFPROTO_IPV6.
constexpr size_t kFamilyOffset = 16;
constexpr uint8_t kIpv6 = 10;

}  // namespace

void FuzzRuleDecoder(FuzzBytes message) {
  const absl::StatusOr<SurveyRule> surveyed =
      netlink::DecodeRule(message, netlink::DecodeFor::kSurvey);
  const absl::StatusOr<ObservedRule> rule = netlink::DecodeRule(message);
  KIPT_REQUIRE(!rule.ok() || surveyed.ok());
  if (!surveyed.ok()) KIPT_REQUIRE_REASON(surveyed.status());
  for (const char* family : {"ip", "ip6"}) {
    if (!surveyed.ok()) break;
    const std::string text = ToString(netlink::TableId{family, "nat"}, *surveyed);
    KIPT_REQUIRE(text.find('\0') == std::string::npos);
  }
  if (!rule.ok()) {
    KIPT_REQUIRE_REASON(rule.status());
    return;
  }
  KIPT_REQUIRE(*rule == *surveyed && rule->counters == surveyed->counters);
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
