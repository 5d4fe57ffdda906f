// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/base_chains.h
//
// The chains that iptables calls built-in and nf_tables calls base chains, as iptables-nft makes
// them. A chain of such a name with another hook or type is somebody else's invention: iptables-nft
// then calls the whole table incompatible.
#ifndef KIPT_NETLINK_BASE_CHAINS_H_
#define KIPT_NETLINK_BASE_CHAINS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

struct BaseChain {
  Table table;
  const char* name;
  uint32_t hook;     // enum nf_inet_hooks, linux/netfilter.h
  int32_t priority;  // enum nf_ip_hook_priorities, linux/netfilter_ipv4.h; the same in IPv6
  const char* type;  // NFTA_CHAIN_TYPE: "filter", "nat" or "route"
};

// The table of that name, if it is one of kTables.
std::optional<Table> FindTable(absl::string_view name);

// Null when `name` is a user chain in `table`. The same for both families.
const BaseChain* FindBaseChain(Table table, absl::string_view name);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_BASE_CHAINS_H_
