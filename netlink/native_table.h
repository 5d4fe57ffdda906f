// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_table.h
//
// A table of nf_tables that is all ours, in nf_tables' own expressions: for kernels that have no
// xtables matches (no nft_compat), where iptables can hold no rule. Nothing native is ever put into
// a table that iptables uses.
//
// The vocabulary is as small as its one use: rules that drop what matches.
#ifndef KIPT_NETLINK_NATIVE_TABLE_H_
#define KIPT_NETLINK_NATIVE_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "netlink/ruleset.h"

namespace kipt::netlink {

// `ip daddr D ip saddr S ct state ... ct status ... counter drop`. What is not set is not tested.
struct NativeDrop {
  std::optional<PrefixMatch> source = {};
  std::optional<PrefixMatch> destination = {};
  // Bits of NF_CT_STATE_* as nft's `ct state` has them (linux/netfilter/nf_tables.h: 1 invalid, 2
  // established, 4 related, 8 new, 64 untracked). At least one of `state_any` holds; 0: not tested.
  uint32_t state_any = 0;
  // None of these holds.
  uint32_t state_none = 0;
  // Bits of enum ip_conntrack_status: none of these is set. A packet without a connection does not
  // match a rule that tests this.
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

struct NativeTable {
  Family family = Family::kIPv4;
  std::string name;
  // In the order of their names.
  std::vector<NativeChain> chains = {};

  bool operator==(const NativeTable&) const = default;
};

// A rule as `nft --stateless list table` (1.0.6) prints it.
std::string ToString(Family family, const NativeDrop& drop);

struct ObservedNativeTable {
  NativeTable table;
  // The table holds something beyond our vocabulary, or has flags (dormant, owner): never equal to
  // what we want.
  bool altered = false;
  // Of all rules together.
  RuleCounters counters = {};

  friend bool operator==(const ObservedNativeTable& a, const ObservedNativeTable& b) {
    return a.table == b.table && a.altered == b.altered;
  }
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_TABLE_H_
