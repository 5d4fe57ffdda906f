// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_lines.h
//
// The text of iptables-save before its rules become values: its lines and words, whether it says
// the same as another text, and the part of it that is asked for, so that tens of thousands of
// other programs' rules need not become values.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_LINES_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_LINES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/xtables/fingerprint.h"
#include "agent/xtables/iptables_save_rule.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Splits the rule that `text` begins with at its spaces, into `words`. A word that begins with a
// double quote goes to the closing one, quotes and backslashes included; it may hold spaces and,
// because iptables-save prints comments as they are, newlines. The rule ends before the first
// newline outside quotes, or with the text.
//
// The result is the rule's length in bytes. Nothing where a quote is not closed, or closed in the
// middle of a word.
std::optional<size_t> SplitSavedRule(absl::string_view text, std::vector<absl::string_view>& words);

// "-A CHAIN TEXT". Views of the text that is being read, good until the next line.
struct SavedRule {
  absl::string_view chain;
  // After "-A CHAIN ", byte for byte.
  absl::string_view text;
  // Its words, as SplitSavedRule splits them.
  absl::Span<const absl::string_view> words;
  // "[12:34]" in front of the rule; zero where there is none.
  netlink::RuleCounters counters = {};
};

// Called for each line, in order. The views are of the text that is being read.
class SaveVisitor {
 public:
  virtual ~SaveVisitor() = default;

  // A line that begins with "#".
  virtual void Comment(absl::string_view /*line*/) {}
  virtual void BeginTable(absl::string_view name) = 0;
  // `policy` is "-" for a user chain.
  virtual void DeclareChain(absl::string_view /*name*/, absl::string_view /*policy*/) {}
  // Of a chain that was declared; `chains` are those of its table.
  virtual void AddRule(const SavedRule& rule, const SavedChains& chains) = 0;
};

enum class SavedTables : uint8_t {
  kOnce,
  // A table may come again, as where several saves are one file.
  kRepeated,
};

// InvalidArgument, with the line's number, where the text is not a whole output of iptables-save or
// iptables-save -c: a table without COMMIT, a rule of a chain that was not declared, a line of
// unknown form, lines that end in CR LF. The visitor has then seen what comes before.
absl::Status ReadSave(absl::string_view text, SavedTables tables, SaveVisitor& visitor);

// Of everything except the comment lines, which have the time, and the counters of chains and (with
// -c) of rules. Saved with the same program, two rulesets have one fingerprint if, and only if,
// they are equal.
Fingerprint FingerprintSaved(const FingerprintKey& key, absl::string_view text);

struct SavedSelection {
  // Chains whose rules are asked for; the family is ignored.
  std::set<netlink::ChainId> chains;
  // Rules of other chains are asked for too if they contain one of these.
  std::set<std::string> words;
};

// `text` with an empty line for each line of a rule that is not selected: chains and line numbers
// stay as they are.
std::string SelectSaved(absl::string_view text, netlink::Family family,
                        const SavedSelection& selection);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_LINES_H_
