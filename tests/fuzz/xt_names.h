// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_XT_NAMES_H_
#define KIPT_TESTS_FUZZ_XT_NAMES_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace kipt::testing {

// All that netlink/xt_info.h decodes or knows, or netlink/xt_*_display.cc shows.
inline constexpr absl::string_view kXtMatches[] = {
    "comment",   "mark",   "conntrack", "addrtype", "connmark", "icmp",      "icmp6", "limit",
    "multiport", "nfacct", "physdev",   "recent",   "sctp",     "statistic", "tcp",   "udp",
    "set",       "state",  "rpfilter",  "bpf",      "unknown",  "connlabel"};
inline constexpr absl::string_view kXtTargets[] = {
    "MARK",   "MASQUERADE", "CONNMARK", "CT",   "LOG",    "NFLOG",    "NOTRACK",
    "REJECT", "TCPMSS",     "TPROXY",   "DNAT", "SNAT",   "REDIRECT", "TRACE",
    "NETMAP", "SET",        "HL",       "TTL",  "unknown"};

// Revisions 0 to 5.
inline constexpr size_t kXtRevisions = 6;

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_XT_NAMES_H_
