// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/survey.h
//
// All tables of one iptables mode, of any family, whoever made them: for telling who depends on
// whom. Backend::Read asks for chains by name; a Survey has everything.
//
// Plain values: printable, safe to copy between threads.
#ifndef KIPT_NETLINK_SURVEY_H_
#define KIPT_NETLINK_SURVEY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

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

// A rule, and how the kernel or the save that it was read from spells it.
struct SurveyRule : ObservedRule {
  // Set where a Rule has its options in another order than ToString gives them.
  std::string spelling = {};
};

// What iptables-save prints behind "-A CHAIN ". For people: nothing is decided by it.
std::string ToString(const TableId& table, const SurveyRule& rule);

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

// In the form of iptables-save -c, one *table block per family and table; "# ip" heads each.
std::string ToString(const Survey& survey);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_SURVEY_H_
