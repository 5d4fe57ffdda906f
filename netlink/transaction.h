// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/transaction.h
//
// A Transaction is a list of operations to be applied to the ruleset as it was at one generation:
// all or nothing. Building one cannot fail; a Backend refuses what does not fit.
//
// Operations take effect in order, each on what the ones before it left.
#ifndef KIPT_NETLINK_TRANSACTION_H_
#define KIPT_NETLINK_TRANSACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "netlink/native_table.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// Makes a chain, and its table where that does not exist. A chain of a base chain's name gets the
// hook, type and priority that iptables gives it (base_chains.h), and no policy of ours. A chain
// that exists is left as it is.
struct CreateChain {
  ChainId chain;
  bool operator==(const CreateChain&) const = default;
};

struct AddRule {
  ChainId chain;
  Rule rule;
  // The observed rule to stand before; without one the rule is appended.
  std::optional<RuleHandle> before{};
  // 1-based number the rule has once this operation is done, as in `iptables -I CHAIN NUMBER`: how
  // backends without handles find the place. 0 where appended.
  int number = 0;
  bool operator==(const AddRule&) const = default;
};

struct DeleteRule {
  ChainId chain;
  RuleHandle handle = 0;
  // 1-based number of the rule just before this operation, as in `iptables -D CHAIN NUMBER`.
  int number = 0;
  // What is deleted: for texts and errors. Only rules of our vocabulary can be deleted.
  Rule rule;
  bool operator==(const DeleteRule&) const = default;
};

// Removes an empty user chain. Refused (FailedPrecondition) while a rule jumps to it.
struct DeleteChain {
  ChainId chain;
  bool operator==(const DeleteChain&) const = default;
};

// Makes packets come to a dormant table's base chains again, `chain` among them; needs nf_tables.
// Nothing else of the table changes.
struct WakeTable {
  ChainId chain;
  // As observed (Snapshot::dormant); those that remain must be the kernel's own.
  uint32_t flags = 0;
  bool operator==(const WakeTable&) const = default;
};

// Makes a native table of ours, or replaces the one of that name; needs nf_tables.
struct PutNativeTable {
  NativeTable table;
  bool operator==(const PutNativeTable&) const = default;
};

// Removes a native table of ours with all that is in it.
struct DeleteNativeTable {
  Family family = Family::kIPv4;
  std::string name;
  bool operator==(const DeleteNativeTable&) const = default;
};

// In the order in which a plan has them: protection is made before the old one is removed, chains
// before the rules that jump to them, and a table is woken when its rules are complete.
using Operation = std::variant<PutNativeTable, CreateChain, AddRule, DeleteRule, DeleteChain,
                               WakeTable, DeleteNativeTable>;

bool IsNative(const Operation& operation);

// The chain that `operation` is about. A native table counts as a chain of filter, because it drops
// packets where filter's base chains do.
ChainId ChainOf(const Operation& operation);

// One line for people: "-A MARKED -j MARK --set-xmark 0x8000/0x8000". A deletion is shown
// with the rule, not with its number; what iptables has no words for is said in nft(8)'s.
std::string ToString(const Operation& operation);

struct Transaction {
  // The generation of the Snapshot it was made from.
  uint32_t generation = 0;
  std::vector<Operation> operations = {};

  bool empty() const { return operations.empty(); }
  bool operator==(const Transaction&) const = default;
};

// The operations of one family as input for `iptables-restore --noflush` (ip6tables-restore for
// IPv6). Loading it does what applying the transaction does, as long as the user chains that it
// creates do not exist: iptables-restore empties a chain that is declared. Base chains are not
// declared, because that would reset their policy, and iptables-restore makes them as needed.
// Native tables and WakeTable are not iptables', and are left out.
std::string ToRestoreText(const Transaction& transaction, Family family);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_TRANSACTION_H_
