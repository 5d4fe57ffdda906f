// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_chain_list.h
//
// Which chains nf_tables holds, where nobody knows their names: for telling whether iptables-nft is
// in use at all. A Backend is asked for chains by name.
#ifndef KIPT_NETLINK_NFT_CHAIN_LIST_H_
#define KIPT_NETLINK_NFT_CHAIN_LIST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

struct ListedChain {
  ChainId id;
  // It has a hook (NFTA_CHAIN_HOOK).
  bool base = false;
  // NFTA_CHAIN_USE: its rules and, for a chain without a hook, the rules that jump to it. 0 says
  // that the chain is empty.
  uint32_t use = 0;

  bool operator==(const ListedChain&) const = default;
};

// The chains of the tables mangle, nat and filter of `family` in the calling thread's network
// namespace, in the kernel's order: one dump of names, no rules. Creates nothing; but where
// nf_tables is a module that is not loaded, the kernel loads it for any request.
//
// Unavailable: this kernel has no nf_tables. Aborted: others kept changing the ruleset.
// PermissionDenied: CAP_NET_ADMIN is missing. Other codes as kernel_error.h maps them.
absl::StatusOr<std::vector<ListedChain>> ListNftChains(Family family);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_CHAIN_LIST_H_
