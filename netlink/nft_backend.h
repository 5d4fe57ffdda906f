// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_backend.h
//
// The Backend of nf_tables: both families over one netlink socket, no program executed, no lock
// taken. See netlink/README.md for the wire.
#ifndef KIPT_NETLINK_NFT_BACKEND_H_
#define KIPT_NETLINK_NFT_BACKEND_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// A backend for the calling thread's network namespace, in which it stays.
// Unavailable: this kernel has no netfilter netlink.
absl::StatusOr<std::unique_ptr<Backend>> NewNftBackend();

// Of a list of all chains, where nobody knows their names: for telling whether iptables-nft is in
// use at all. A Backend is asked for chains by name.
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

#endif  // KIPT_NETLINK_NFT_BACKEND_H_
