// SPDX-License-Identifier: Apache-2.0
#include "tests/support/legacy_tables.h"

#include <fstream>
#include <iterator>

namespace kipt::testing {

std::vector<std::string> IptablesLegacyTables(IpFamily family) {
  std::ifstream names(family == IpFamily::kIpv4 ? "/proc/thread-self/net/ip_tables_names"
                                                : "/proc/thread-self/net/ip6_tables_names");
  return {std::istream_iterator<std::string>(names), {}};
}

}  // namespace kipt::testing
