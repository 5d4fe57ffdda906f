// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/save_reader.h
//
// The lines of iptables-save: what is a whole save and what is not, in one place for all who make
// something of it.
#ifndef KIPT_AGENT_XTABLES_SAVE_READER_H_
#define KIPT_AGENT_XTABLES_SAVE_READER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/xtables/save_rule.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_SAVE_READER_H_
