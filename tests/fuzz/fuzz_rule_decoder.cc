// SPDX-License-Identifier: Apache-2.0
//
// The decoder of rules on any bytes, and what it promises about what it makes of them: a Rule is
// one that we could write, and reads back as itself; every text is one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "netlink/rule_codec.h"

namespace {

using kipt::netlink::ChainId;
using kipt::netlink::Family;
using kipt::netlink::ObservedRule;
using kipt::netlink::Table;
using kipt::netlink::WireBytes;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Offset of nfgen_family, linux/netfilter/nfnetlink.h, and NFPROTO_IPV6.
constexpr size_t kFamilyOffset = 16;
constexpr uint8_t kIpv6 = 10;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const WireBytes message(data, size);
  const auto described = kipt::netlink::DescribeRule(message);
  const absl::StatusOr<ObservedRule> rule = kipt::netlink::DecodeRule(message);
  Require(!rule.ok() || described.ok());
  if (described.ok()) Require(described->content.text.find('\0') == std::string::npos);
  if (!rule.ok() || rule->rule() == nullptr) return 0;
  const Family family = data[kFamilyOffset] == kIpv6 ? Family::kIPv6 : Family::kIPv4;
  const ChainId chain{.family = family, .table = Table::kNat, .name = "FUZZ"};
  Require(kipt::netlink::EncodeRule(chain, *rule->rule()).ok());
  // Two ways to the same facts.
  Require(MarksTested(*rule) == described->content.marks_tested);
  Require(MarksSet(*rule) == described->content.marks_set);
  Require(IsUnconditional(*rule->rule()) == described->content.unconditional);
  return 0;
}
