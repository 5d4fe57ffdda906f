// SPDX-License-Identifier: Apache-2.0
//
// What each foreign writer has made and nobody has taken away since: at a quiet moment all of it
// stands, once, in its writer's order. Safe for use by several threads.
#ifndef KIPT_TESTS_SOAK_LEDGER_H_
#define KIPT_TESTS_SOAK_LEDGER_H_

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {

// "ipv4", "nat".
using TableId = std::pair<testing::IpFamily, std::string>;

class Ledger {
 public:
  // As iptables-save prints them: "-A CHAIN ...", ":CHAIN -".
  void Add(const TableId& table, const std::string& writer, const std::vector<std::string>& lines);
  void Remove(const TableId& table, const std::string& writer,
              const std::vector<std::string>& lines);
  bool Has(const TableId& table, const std::string& writer, const std::string& line) const;

  // Somebody has emptied the table of rules, or of everything.
  void ForgetRules(const TableId& table);
  void ForgetTable(const TableId& table);

  // By writer, each in its order.
  std::map<std::string, std::vector<std::string>> Of(const TableId& table) const;
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<TableId, std::map<std::string, std::vector<std::string>>> lines_;
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_LEDGER_H_
