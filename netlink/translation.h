// SPDX-License-Identifier: Apache-2.0
//
// What nft(8) and iptables-nft make of expressions.
#ifndef KIPT_NETLINK_TRANSLATION_H_
#define KIPT_NETLINK_TRANSLATION_H_

#include <optional>

#include "absl/types/span.h"
#include "netlink/expression.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// The rule of iptables that `nft list ruleset` shows, and nft then loads, as exactly these
// expressions: a counter, and native ones for xtables' matches and targets. Its comment is lost.
// Nothing for other rules. nft translates `! --ctstate ...,DNAT` wrongly, to `ct status dnat`,
// which is read literally.
std::optional<Rule> ReadTranslation(Family family, absl::Span<const Expression> expressions);

// Whether iptables-nft since 1.8.8 can list a rule of these in a table of iptables. False where one
// of its releases refuses them.
bool IsListable(Family family, absl::Span<const Expression> expressions);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_TRANSLATION_H_
