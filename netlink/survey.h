// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/survey.h
//
// Everything that stands in the tables of one iptables mode, in whatever family and table, whoever
// made it: for telling who depends on whom. A Backend's Read asks for chains by name and keeps them
// apart as values that can be compared; a Survey is for people and for analysis, and its rules are
// text.
//
// Plain values: printable, safe to copy between threads.
#ifndef KIPT_NETLINK_SURVEY_H_
#define KIPT_NETLINK_SURVEY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// One table of one namespace, of any program: {"ip", "nat"}, {"inet", "firewalld"}.
struct TableId {
  // "ip", "ip6", "inet", "arp", "bridge" or "netdev", as nft(8) names them.
  std::string family;
  std::string name;

  auto operator<=>(const TableId&) const = default;
};

// "ip nat".
std::string ToString(const TableId& table);

struct SurveyRule {
  // What stands behind "-A CHAIN " in the output of iptables-save. Where we cannot spell an option,
  // "[xt NAME rev N]" or "[nft NAME]" stands for it.
  std::string text;
  // The user chain it jumps or goes to; empty where it does not.
  std::string jump;
  // As in OpaqueRule.
  bool unconditional = false;
  bool terminal = false;
  uint32_t marks_tested = 0;
  uint32_t marks_set = 0;
  ConnLabelSet labels_set = {};
  RuleCounters counters = {};

  // Counters aside, as for ObservedRule.
  friend bool operator==(const SurveyRule& a, const SurveyRule& b) {
    return a.text == b.text && a.jump == b.jump && a.unconditional == b.unconditional &&
           a.terminal == b.terminal && a.marks_tested == b.marks_tested &&
           a.marks_set == b.marks_set && a.labels_set == b.labels_set;
  }
};

struct SurveyChain {
  // It hangs on a hook: packets come to it without a jump.
  bool base = false;
  // Of a base chain: "ACCEPT" or "DROP". Empty where that is not known.
  std::string policy = {};
  std::vector<SurveyRule> rules = {};

  bool operator==(const SurveyChain&) const = default;
};

struct Survey {
  // "nft" or "legacy"; empty for a text of unknown origin.
  std::string mode;
  // As Snapshot::generation.
  uint32_t generation = 0;
  // Tables without chains are there, empty.
  std::map<TableId, std::map<std::string, SurveyChain>> tables;

  // Null where the chain does not exist.
  const SurveyChain* Find(const TableId& table, const std::string& chain) const;

  bool operator==(const Survey&) const = default;
};

// Which rules a survey keeps; the others are read and forgotten at once, so that a node with tens
// of thousands of rules needs no memory for them. Chains are always kept. Empty: all.
using SurveyFilter =
    std::function<bool(const TableId& table, const std::string& chain, const SurveyRule& rule)>;

// The survey's form of `rule`.
SurveyRule ToSurveyRule(Family family, const ObservedRule& rule);

// In the form of iptables-save -c, one *table block per family and table; "# ip" heads each.
std::string ToString(const Survey& survey);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_SURVEY_H_
