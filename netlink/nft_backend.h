// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_backend.h
//
// The Backend of nf_tables: both families over one netlink socket, no program executed, no lock
// taken. See netlink/README.md for the wire.
#ifndef KIPT_NETLINK_NFT_BACKEND_H_
#define KIPT_NETLINK_NFT_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "netlink/backend.h"

namespace kipt::netlink {

// A backend for the calling thread's network namespace, in which it stays.
// Unavailable: this kernel has no netfilter netlink.
absl::StatusOr<std::unique_ptr<Backend>> NewNftBackend();

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_BACKEND_H_
