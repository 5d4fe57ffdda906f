// SPDX-License-Identifier: Apache-2.0
//
// Operations to be applied to the ruleset as it was at one generation, all or nothing, each on what
// the ones before it left. A Backend refuses what does not fit.
#ifndef KIPT_NETLINK_TRANSACTION_H_
#define KIPT_NETLINK_TRANSACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "netlink/ruleset.h"

namespace kipt::netlink {

// The type of every chain of a native table.
inline constexpr char kNativeChainType[] = "filter";

// `ip daddr D ip saddr S ct state ... ct status ... counter drop`. Only what is set is tested.
struct NativeDrop {
  std::optional<PrefixMatch> source = {};
  std::optional<PrefixMatch> destination = {};
  // NF_CT_STATE_* of linux/netfilter/nf_conntrack_common.h. At least one of `state_any` holds, and
  // none of `state_none`.
  uint32_t state_any = 0;
  uint32_t state_none = 0;
  // enum ip_conntrack_status: none of these is set. A packet without a connection does not match a
  // rule that tests this.
  uint32_t status_none = 0;
  // Kept with the rule and shown by `nft list ruleset`; at most 127 bytes.
  std::string comment = {};

  bool operator==(const NativeDrop&) const = default;
};

// `type filter hook HOOK priority PRIORITY; policy accept;`
struct NativeChain {
  std::string name;
  uint32_t hook = 0;     // enum nf_inet_hooks
  int32_t priority = 0;  // enum nf_ip_hook_priorities
  std::vector<NativeDrop> rules = {};

  bool operator==(const NativeChain&) const = default;
};

// A table of nf_tables that is all ours, in nf_tables' own expressions, for kernels without xtables
// matches (nft_compat). Nothing native is ever put into a table that iptables uses.
struct NativeTable {
  Family family = Family::kIPv4;
  std::string name;
  // In the order of their names.
  std::vector<NativeChain> chains = {};

  bool operator==(const NativeTable&) const = default;
};

// A rule as `nft --stateless list table` (1.0.6) prints it.
std::string ToString(Family family, const NativeDrop& drop);

// Makes a chain, and its table where that does not exist. A base chain gets the hook, type and
// priority that iptables gives it (FindBaseChain), and no policy of ours. An existing chain is left
// unchanged.
struct CreateChain {
  ChainId chain;
  bool operator==(const CreateChain&) const = default;
};

struct AddRule {
  ChainId chain;
  Rule rule;
  // The observed rule that will follow; without one the rule is appended.
  std::optional<RuleHandle> before{};
  // NUMBER of `iptables -I CHAIN NUMBER`, for backends without handles. 0 where appended.
  int number = 0;
  bool operator==(const AddRule&) const = default;
};

struct DeleteRule {
  ChainId chain;
  RuleHandle handle = 0;
  // NUMBER of `iptables -D CHAIN NUMBER` at this operation's turn, where a backend has no handles.
  int number = 0;
  // For texts and errors. Only rules of our vocabulary can be deleted.
  Rule rule;
  bool operator==(const DeleteRule&) const = default;
};

// Removes an empty user chain. Refused (FailedPrecondition) while a rule jumps to it.
struct DeleteChain {
  ChainId chain;
  bool operator==(const DeleteChain&) const = default;
};

// Makes packets reach a dormant table's base chains again, `chain` among them; needs nf_tables.
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

// For people: "-A MARKED -j MARK --set-xmark 0x8000/0x8000". A deletion is shown with the rule, not
// with its number; what iptables cannot write is shown as nft(8)'s.
std::string ToString(const Operation& operation);

struct Transaction {
  uint32_t generation = 0;  // of the Snapshot that it was made from
  std::vector<Operation> operations = {};
  // All of it follows from the Snapshot alone, the backend's last: a commit of another program that
  // changed nothing of what was read may come in between.
  bool only_of_snapshot = false;
  // Additions alone, which other programs' changes since then stop only where one concerns the same
  // chain.
  bool despite_changes = false;

  bool empty() const { return operations.empty(); }
  bool operator==(const Transaction&) const = default;
};

// The operations of one family as input for `iptables-restore --noflush` (ip6tables-restore for
// IPv6). Loading it applies them, if the user chains that it creates do not exist: iptables-restore
// empties a declared chain. Base chains are not declared, because that would reset their policy.
// Native tables and WakeTable are left out.
std::string ToRestoreText(const Transaction& transaction, Family family);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_TRANSACTION_H_
