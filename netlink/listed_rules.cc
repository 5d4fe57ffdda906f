// SPDX-License-Identifier: Apache-2.0
#include "netlink/listed_rules.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>

#include "netlink/rule_codec.h"

namespace kipt::netlink {
namespace {

constexpr size_t kMostRules = 64;
// Other programs' chains come and go.
constexpr size_t kMostChains = 256;
// Holds the sequence number and the generation, which differ each time.
constexpr size_t kHeader = NLMSG_HDRLEN + sizeof(nfgenmsg);

}  // namespace

absl::StatusOr<ObservedRule> ListedRules::Decode(const ChainId& chain, size_t place,
                                                 WireBytes message) {
  const WireBytes bytes = message.subspan(std::min(kHeader, message.size()));
  Chain& known = chains_[chain];
  if (place < known.rules.size() && WireBytes(known.rules[place].bytes) == bytes) {
    return known.rules[place].rule;
  }
  absl::StatusOr<ObservedRule> rule = DecodeRule(message);
  if (!rule.ok() || !known.again || place >= kMostRules) return rule;
  if (place >= known.rules.size()) known.rules.resize(place + 1);
  known.rules[place] = {{bytes.begin(), bytes.end()}, *rule};
  return rule;
}

void ListedRules::EndChain(const ChainId& chain) {
  if (chains_.size() > kMostChains) chains_.clear();
  chains_[chain].again = true;
}

}  // namespace kipt::netlink
