// SPDX-License-Identifier: Apache-2.0
//
// One rule that iptables-save printed as a value. Not installed.
#ifndef KIPT_AGENT_XTABLES_SAVED_RULE_H_
#define KIPT_AGENT_XTABLES_SAVED_RULE_H_

#include <optional>
#include <variant>

#include "absl/strings/string_view.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The rule with `text` after "-A CHAIN ", which SplitSavedRule can split. A line becomes a Rule
// only if all of it is in the vocabulary of netlink/ruleset.h; any other becomes an OpaqueRule with
// that text. A jump is one to a user chain of `chains`.
std::variant<netlink::Rule, netlink::OpaqueRule> ParseSavedRule(netlink::Family family,
                                                                const SavedChains& chains,
                                                                absl::string_view text);

// "16/0xff" or "020": decimal, hexadecimal or octal, as iptables(8) accepts numbers: files are
// written by hand, too. All bits where there is no mask.
std::optional<netlink::SetMark> ReadMaskedValue(absl::string_view word);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_SAVED_RULE_H_
