// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_reader.h
//
// Reads the text of iptables-save: its words, its lines, and its chains as values.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_READER_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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
  // Behind "-A CHAIN ", byte for byte.
  absl::string_view text;
  // Its words, as SplitSavedRule splits them.
  absl::Span<const absl::string_view> words;
  // "[12:34]" in front of the rule; zero where there is none.
  netlink::RuleCounters counters = {};
};

// Told of each line, in order. The views are of the text that is being read.
class SaveVisitor {
 public:
  virtual ~SaveVisitor() = default;

  // A line that begins with "#".
  virtual void Comment(absl::string_view /*line*/) {}
  virtual void BeginTable(absl::string_view name) = 0;
  // `policy` is "-" for a user chain.
  virtual void DeclareChain(absl::string_view name, absl::string_view policy) = 0;
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

// Every chain of the tables mangle, nat and filter in `text`, which iptables-save printed (or
// ip6tables-save, for IPv6). Other tables are skipped. Strict about our rules: a line becomes a
// Rule only if all of it is in the vocabulary of netlink/ruleset.h. Lossless about other programs'
// rules: any other line becomes an OpaqueRule whose text is the line's, byte for byte.
//
// A rule's handle is its number in its chain, from 1. `hooked` is true for iptables' built-in
// chains (they have a policy). A rule has the counters in front of it ("[12:34]", of iptables-save
// -c); those after chains are accepted and ignored.
//
// InvalidArgument as ReadSave, also if a table comes twice.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ParseSave(
    netlink::Family family, absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_READER_H_
