// SPDX-License-Identifier: Apache-2.0
//
// The text of iptables-save as values: of a running iptables-legacy-save, and of files that an
// administrator kept. Lossless about other programs' rules. Not installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Splits the rule that `text` begins with at its spaces, into `words`, and returns the rule's
// length in bytes. A word that begins with a double quote ends with the closing one, quotes and
// backslashes included; it may hold spaces and, in a comment, newlines. (Names of chains,
// interfaces and lists are never quoted.) The rule ends before the first newline outside quotes, or
// with the text.
//
// Nothing if a quote is not closed, or closed in the middle of a word.
std::optional<size_t> SplitSavedRule(absl::string_view text, std::vector<absl::string_view>& words);

// The inverse of netlink::QuoteForSave. Nothing where QuoteForSave would not have written `word`.
std::optional<std::string> UnquoteSavedWord(absl::string_view word);

// The chains declared in one table, and their policies: "-" for a user chain. All views below are
// of the text that was read.
using SavedChains = absl::flat_hash_map<absl::string_view, absl::string_view>;

// "-A CHAIN TEXT".
struct SavedRule {
  absl::string_view chain;
  absl::string_view text;
  // "[12:34]" in front of the rule (iptables-save -c); zero where there is none.
  netlink::RuleCounters counters = {};

  template <typename H>
  friend H AbslHashValue(H state, const SavedRule& rule) {
    return H::combine(std::move(state), rule.chain, rule.text);
  }
};

struct SavedTable {
  absl::string_view name;
  // The number of its save, and the program and time in that save's heading, if it has one.
  size_t save = 0;
  absl::string_view heading = {};
  SavedChains chains = {};
  // In the order of the text. Their chains are declared.
  std::vector<SavedRule> rules = {};

  // Compares what one program printed; headings, which have the time, and counters do not count.
  template <typename H>
  friend H AbslHashValue(H state, const SavedTable& table) {
    return H::combine(std::move(state), table.name, table.chains, table.rules);
  }
};

// "[12:34]", packets and bytes.
std::optional<netlink::RuleCounters> ReadSavedCounters(absl::string_view text);
// "-", "ACCEPT", ... of ":CHAIN POLICY [0:0]"; empty where `line` is no such line. Splits it into
// `words`.
absl::string_view ReadSavedPolicy(absl::string_view line, std::vector<absl::string_view>& words);

enum class TablesMayRepeat : uint8_t {
  kNo,
  // A file of several saves: one ends at the next heading, or where a table comes again.
  kYes,
};

// InvalidArgument, with the line's number, where the text is not a whole output of iptables-save or
// iptables-save -c: a table without COMMIT, a rule of a chain that was not declared, a line of
// unknown form, lines that end in CR LF, a table for the second time.
absl::StatusOr<std::vector<SavedTable>> ReadSave(absl::string_view text, TablesMayRepeat repeat);

using ObservedChains = std::map<netlink::ChainId, netlink::ObservedChain>;

// The chains and rules to read: tens of thousands of other programs' rules need not become values.
struct SavedSelection {
  std::set<netlink::ChainId> chains;     // with their rules
  std::set<netlink::ChainId> bare = {};  // only whether they exist
  std::set<std::string> words = {};      // rules of other chains that contain one of these
};

// The selected chains of the tables mangle, nat and filter; all, with all rules, if `selection` is
// null.
//
// A rule's handle is its number in its chain, from 1. `hooked` is true for iptables' built-in
// chains (they have a policy).
ObservedChains ChainsOf(netlink::Family family, const std::vector<SavedTable>& tables,
                        const SavedSelection* selection = nullptr);

// Both in one, with all rules. Errors as ReadSave, also if a table comes twice.
absl::StatusOr<ObservedChains> ParseSave(netlink::Family family, absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_
