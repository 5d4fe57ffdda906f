// SPDX-License-Identifier: Apache-2.0
//
// The kernel's headers of nf_tables, in the order in which they can be included.
#ifndef KIPT_NETLINK_NF_TABLES_H_
#define KIPT_NETLINK_NF_TABLES_H_

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#endif  // KIPT_NETLINK_NF_TABLES_H_
