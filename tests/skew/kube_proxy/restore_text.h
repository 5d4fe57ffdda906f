// SPDX-License-Identifier: Apache-2.0
//
// Writing what `iptables-restore --noflush` reads: first the lines of all chains, then the rules. A
// chain that has a line is emptied before any rule is added, so rules may name chains in any order.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_RESTORE_TEXT_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_RESTORE_TEXT_H_

#include <initializer_list>
#include <set>
#include <string>
#include <utility>

namespace kipt::skew {

class TableText {
 public:
  explicit TableText(std::string table) : table_(std::move(table)) {}

  // The chain's line, which makes it or empties it. A second call for one chain adds nothing.
  void Chain(const std::string& chain);
  // The pieces are what follows "-A CHAIN", in their order; empty ones are left out.
  void Rule(const std::string& chain, std::initializer_list<std::string> pieces);
  // Empties a chain and deletes it. Other chains' rules that still name it make the whole table
  // fail.
  void Delete(const std::string& chain);

  // Every chain that has a line and is not deleted.
  const std::set<std::string>& chains() const { return chains_; }
  // "*TABLE" to "COMMIT".
  std::string Text() const;

 private:
  std::string table_;
  std::set<std::string> chains_;
  std::string chain_lines_;
  std::string rule_lines_;
};

// The two tables that a kube-proxy restores; filter stands first, and is committed first.
struct SyncTables {
  TableText filter{"filter"};
  TableText nat{"nat"};

  std::string Text() const { return filter.Text() + nat.Text(); }
};

// "-m comment --comment TEXT": in quotes where it has a space, as kube-proxy does.
std::string Comment(const std::string& text);
// "-j TARGET".
std::string Jump(const std::string& target);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_RESTORE_TEXT_H_
