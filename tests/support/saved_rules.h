// SPDX-License-Identifier: Apache-2.0
//
// What iptables-nft-save and iptables-legacy-save print, as values that can be compared line by
// line.
#ifndef KIPT_TESTS_SUPPORT_SAVED_RULES_H_
#define KIPT_TESTS_SUPPORT_SAVED_RULES_H_

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

class SavedRules {
 public:
  // What this iptables saves in the calling thread's network namespace. A save that fails, warns
  // (but of labels that have no names) or calls a table incompatible fails the test.
  static SavedRules Of(const Iptables& iptables);
  // Comments and counters are dropped; the order of the rules is kept.
  static SavedRules Parse(const std::string& text);

  bool HasChain(const std::string& table, const std::string& chain) const;
  // Every chain, as its table and its name.
  std::vector<std::pair<std::string, std::string>> Chains() const;
  // "-A CHAIN ..." lines in their order; empty where there is no such chain.
  std::vector<std::string> Rules(const std::string& table, const std::string& chain) const;
  // "TABLE: -A CHAIN ..." of each rule that occurs more than once.
  std::vector<std::string> DoubledRules() const;
  // "TABLE: LINE" of each line that `other` has not.
  std::vector<std::string> LinesMissingIn(const SavedRules& other) const;

  // These describe a difference that was decided on. Removing what is not there fails the test: a
  // difference that no longer exists must not stay described.
  void RemoveChain(const std::string& table, const std::string& chain);
  // Drops a table in which no rule and no user chain is left.
  void RemoveTableIfBare(const std::string& table);
  void AddRule(const std::string& table, const std::string& line);

  // One text for equal rules: tables, chains and rules sorted, but the rules of KUBE-POSTROUTING in
  // their order, which decides what happens to a packet. (Two drops in KUBE-FIREWALL and two jumps
  // from base chains do the same in either order.)
  std::string Comparable() const;

 private:
  struct Table {
    std::vector<std::string> chains;  // ":CHAIN POLICY"
    std::vector<std::string> rules;   // "-A CHAIN ..."
  };
  std::map<std::string, Table> tables_;
};

// Equal by Comparable().
bool operator==(const SavedRules& a, const SavedRules& b);
std::ostream& operator<<(std::ostream& stream, const SavedRules& rules);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_SAVED_RULES_H_
