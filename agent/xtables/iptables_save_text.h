// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_text.h
//
// The text of iptables-save before it is parsed: whether it says the same as another, and the part
// of it that somebody wants, so that tens of thousands of other people's rules need not become
// values.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_TEXT_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_TEXT_H_

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/xtables/fingerprint.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Of everything but the comment lines, which have the time, and the counters of chains and (with
// -c) of rules. Saved with the same program, two rulesets have one fingerprint if, and only if,
// they are equal.
Fingerprint FingerprintSaved(const FingerprintKey& key, absl::string_view text);

struct SavedSelection {
  // Chains whose rules are wanted; the family is not looked at.
  std::set<netlink::ChainId> chains;
  // Rules of other chains are wanted too if they contain one of these.
  std::set<std::string> words;
};

// `text` with an empty line for each line of a rule that is not selected: chains and line numbers
// stay as they are.
std::string SelectSaved(absl::string_view text, netlink::Family family,
                        const SavedSelection& selection);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_TEXT_H_
