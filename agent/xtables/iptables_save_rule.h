// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_rule.h
//
// What the words of one rule say, as iptables-save prints it.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_RULE_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_RULE_H_

#include <optional>
#include <string>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The chains declared in one table, and whether they are built-in (have a policy). Views of the
// text that is being parsed.
using SavedChains = absl::flat_hash_map<absl::string_view, bool>;

// What the words behind "-A CHAIN" say. `text` is the same in one piece; it becomes an OpaqueRule's
// text. A jump is one to a chain in `chains` that is not built-in.
std::variant<netlink::Rule, netlink::OpaqueRule> ParseSavedRule(
    netlink::Family family, const SavedChains& chains, absl::string_view text,
    absl::Span<const absl::string_view> words);

// The inverse of netlink::QuoteForSave. Nothing where QuoteForSave would not have written `word`.
std::optional<std::string> UnquoteSavedWord(absl::string_view word);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_RULE_H_
