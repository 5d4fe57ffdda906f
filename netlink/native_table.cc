// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_table.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter_ipv4.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace kipt::netlink {
namespace {

struct BitName {
  uint32_t bit;
  absl::string_view name;
};

// In the order of their bits, as nft prints them.
constexpr BitName kStates[] = {{NF_CT_STATE_INVALID_BIT, "invalid"},
                               {NF_CT_STATE_BIT(IP_CT_ESTABLISHED), "established"},
                               {NF_CT_STATE_BIT(IP_CT_RELATED), "related"},
                               {NF_CT_STATE_BIT(IP_CT_NEW), "new"},
                               {NF_CT_STATE_UNTRACKED_BIT, "untracked"}};
constexpr BitName kStatuses[] = {{IPS_EXPECTED, "expected"}, {IPS_SEEN_REPLY, "seen-reply"},
                                 {IPS_ASSURED, "assured"},   {IPS_CONFIRMED, "confirmed"},
                                 {IPS_SRC_NAT, "snat"},      {IPS_DST_NAT, "dnat"},
                                 {IPS_DYING, "dying"}};

// "established,new,0x80".
std::string BitNames(uint32_t bits, absl::Span<const BitName> names) {
  std::vector<std::string> parts;
  for (const BitName& known : names) {
    if ((bits & known.bit) == 0) continue;
    parts.emplace_back(known.name);
    bits &= ~known.bit;
  }
  if (bits != 0) parts.push_back(absl::StrCat("0x", absl::Hex(bits)));
  return absl::StrJoin(parts, ",");
}

std::string AddressText(Family family, absl::string_view what, const PrefixMatch& match) {
  const std::string prefix = ToString(family, match.prefix);
  // A single address has no length.
  return absl::StrCat(FamilyName(family), " ", what, " ", match.negated ? "!= " : "",
                      absl::StripSuffix(prefix, family == Family::kIPv4 ? "/32" : "/128"));
}

}  // namespace

std::string ToString(Family family, const NativeDrop& drop) {
  std::vector<std::string> parts;
  if (drop.destination) parts.push_back(AddressText(family, "daddr", *drop.destination));
  if (drop.source) parts.push_back(AddressText(family, "saddr", *drop.source));
  if (drop.state_any != 0) {
    parts.push_back(absl::StrCat("ct state ", BitNames(drop.state_any, kStates)));
  }
  if (drop.state_none != 0) {
    parts.push_back(absl::StrCat("ct state ! ", BitNames(drop.state_none, kStates)));
  }
  if (drop.status_none != 0) {
    parts.push_back(absl::StrCat("ct status ! ", BitNames(drop.status_none, kStatuses)));
  }
  parts.emplace_back("counter drop");
  if (!drop.comment.empty()) parts.push_back(absl::StrCat("comment \"", drop.comment, "\""));
  return absl::StrJoin(parts, " ");
}

}  // namespace kipt::netlink
