// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/save_words.h
//
// The words of a rule, as iptables-save spells and quotes them.
#ifndef KIPT_AGENT_XTABLES_SAVE_WORDS_H_
#define KIPT_AGENT_XTABLES_SAVE_WORDS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kipt::agent {

// Splits the rule that `text` begins with at its spaces, into `words`. A word that begins with a
// double quote goes to the closing one, quotes and backslashes included; it may hold spaces and,
// because iptables-save prints comments as they are, newlines. The rule ends before the first
// newline outside quotes, or with the text.
//
// The result is the rule's length in bytes. Nothing where a quote is not closed, or closed in the
// middle of a word.
std::optional<size_t> SplitSavedRule(absl::string_view text, std::vector<absl::string_view>& words);

// The inverse of netlink::QuoteForSave. Nothing where QuoteForSave would not have written `word`.
std::optional<std::string> UnquoteSavedWord(absl::string_view word);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_SAVE_WORDS_H_
