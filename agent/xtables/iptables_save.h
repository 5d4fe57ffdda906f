// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save.h
//
// What iptables-save prints, as a text and as values. Not installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

// ---- fingerprints ----
//
// A short value that stands for a long text: equal texts have equal fingerprints, and that two
// others have is as likely as guessing 128 bits.

using Fingerprint = std::array<uint64_t, 2>;
using FingerprintKey = std::array<uint64_t, 2>;

// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF").
// With a secret key, no other program can make two texts that are taken for one.
class Fingerprinter {
 public:
  explicit Fingerprinter(const FingerprintKey& key);

  void Add(absl::string_view text);
  // To be called once, last.
  Fingerprint Finish();

 private:
  void Compress(uint64_t word);
  void Round();

  std::array<uint64_t, 4> state_;
  // Bytes that do not fill a word yet, lowest first.
  uint64_t pending_ = 0;
  size_t length_ = 0;
};

FingerprintKey RandomFingerprintKey();

// ---- one rule ----
//
// What the words of one rule say, as iptables-save prints it, and what its matches and targets do
// with the packet's mark and the connection's labels, as in OpaqueRule (iptables_save_marks.cc).

// The chains declared in one table, and whether they are built-in (have a policy). Views of the
// text that is being parsed.
using SavedChains = absl::flat_hash_map<absl::string_view, bool>;

// What the words after "-A CHAIN" say. `text` is the same in one piece; it becomes an OpaqueRule's
// text. A jump is one to a chain in `chains` that is not built-in.
std::variant<netlink::Rule, netlink::OpaqueRule> ParseSavedRule(
    netlink::Family family, const SavedChains& chains, absl::string_view text,
    absl::Span<const absl::string_view> words);

// The inverse of netlink::QuoteForSave. Nothing where QuoteForSave would not have written `word`.
std::optional<std::string> UnquoteSavedWord(absl::string_view word);

// "16/0xff" or "020": decimal, hexadecimal or octal, as iptables(8) accepts numbers, not only as
// iptables-save prints them: files are written by hand, too. All bits where there is no mask.
std::optional<netlink::SetMark> ReadMaskedValue(absl::string_view word);

// Of the match `-m NAME`. `words` are those after the name; its options end at the next -m, -j or
// -g. A match that we do not know may look at every bit, and give every label.
netlink::Marks MarksOfMatch(absl::string_view name, absl::Span<const absl::string_view> words);

// Of the target `-j NAME`, which is no chain and no verdict. `words` are those after the name,
// all. A target that we do not know may do anything with every bit and label.
netlink::Marks MarksOfTarget(absl::string_view name, absl::Span<const absl::string_view> words);

// ---- lines and words ----
//
// The text of iptables-save before its rules become values: its lines and words, whether it says
// the same as another text, and the part of it that is asked for, so that tens of thousands of
// other programs' rules need not become values.

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

// ---- values ----
//
// Values out of the text of iptables-save: of a running iptables-legacy-save, and of files that an
// administrator kept. Strict about our rules: a line becomes a Rule only if all of it is in the
// vocabulary of netlink/ruleset.h. Lossless about other programs' rules: any other line becomes an
// OpaqueRule whose text is the line's, byte for byte.

// Every chain of the tables mangle, nat and filter in `text`, which iptables-save printed (or
// ip6tables-save, for IPv6). Other tables are skipped.
//
// A rule's handle is its number in its chain, from 1. `hooked` is true for iptables' built-in
// chains (they have a policy). A rule has the counters in front of it ("[12:34]", of iptables-save
// -c); those after chains are accepted and ignored.
//
// InvalidArgument as ReadSave, also if a table comes twice.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ParseSave(
    netlink::Family family, absl::string_view text);

// All tables in `text`, raw and security too, as tables of `family`. `text` is the output of
// iptables-save or iptables-save -c, or several of these, one after the other; a table that comes
// again replaces the one before, as iptables-restore would have it. The generation is 0. An empty
// `keep` keeps all rules.
//
// InvalidArgument as ReadSave.
absl::StatusOr<netlink::Survey> ParseSurvey(absl::string_view mode, netlink::Family family,
                                            absl::string_view text,
                                            const netlink::SurveyFilter& keep);

// A file of one or more saves of unknown family: a survey of no mode. A table's family is that of
// the addresses, protocols and answers ("icmp6-...") in its rules; where these say nothing, that of
// the program that its save's heading names ("# Generated by ip6tables-save"); where there is no
// heading, that of the other tables of its save; else IPv4. A save ends where the next heading
// begins, or where a table comes for the second time.
//
// InvalidArgument as ReadSave, where a table has addresses of both families, where those are not of
// the family that the heading says, and where there is no table at all.
absl::StatusOr<netlink::Survey> ParseSavedFile(absl::string_view text);

// ---- names of connection labels ----
//
// iptables-save prints a connection's label by the name that connlabel.conf gives it, where it has
// one. Rules are compared by numbers, so names are put back into numbers before anybody reads.

// Labels by name.
using ConnLabelNames = std::map<std::string, int>;

// What libnetfilter_conntrack makes of the file's text (its src/conntrack/labels.c): a line is a
// number (of any base that strtoul knows) and a name; those that begin with "#" and those that it
// does not understand are left out. Of two lines with one name, or of one label, the first counts.
ConnLabelNames ParseConnLabelNames(absl::string_view text);

// Of the file at `path`. None where there is no such file: an administrator has to write one.
// FailedPrecondition, with what to do, where it cannot be read and where it has more than 64 KiB.
absl::StatusOr<ConnLabelNames> ReadConnLabelNames(const std::string& path);

// Why no rule about labels may be made while the file at `path` is as it is, and what to do; empty
// where one may. Where iptables opens a file that names nothing, it ends with an error whenever it
// prints such a rule, and iptables-save shows no rules any more. Where it cannot open the
// file it prints numbers. Where the file is too large for us, we could not read our rules back.
std::string ConnLabelNamesProblem(const std::string& path);

// Whether `saved`, the text of iptables-save, may hold names.
bool MentionsConnLabels(absl::string_view saved);

// Whether it holds one for certain: a label without a name is printed as its plain number.
bool HasConnLabelNames(absl::string_view saved);

// `saved` with numbers, as where nothing has a name: `-m connlabel --label "NAME"` becomes
// `-m connlabel --label "114"`. A name that looks like a number is one only where the label of that
// number is printed by a name of its own. Everything else is left as it is, byte for byte; so is
// what follows a rule whose quotes do not close.
std::string WithConnLabelNumbers(absl::string_view saved, const ConnLabelNames& names);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_H_
