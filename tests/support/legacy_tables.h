// SPDX-License-Identifier: Apache-2.0
//
// Which tables legacy iptables has: reading any other with its programs would make it.
#ifndef KIPT_TESTS_SUPPORT_LEGACY_TABLES_H_
#define KIPT_TESTS_SUPPORT_LEGACY_TABLES_H_

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// "filter", "nat": of the calling thread's network namespace, by /proc/thread-self/net. A chroot
// has no /proc: iptables-legacy-save finds no tables there, and reports no error.
inline std::vector<std::string> IptablesLegacyTables(IpFamily family) {
  std::ifstream names(family == IpFamily::kIpv4 ? "/proc/thread-self/net/ip_tables_names"
                                                : "/proc/thread-self/net/ip6_tables_names");
  return {std::istream_iterator<std::string>(names), {}};
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_LEGACY_TABLES_H_
