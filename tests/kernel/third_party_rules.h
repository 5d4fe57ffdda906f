// SPDX-License-Identifier: Apache-2.0
//
// Rules as network plugins, container engines and firewalls write them, written by hand after what
// they print: input of iptables-restore -c --noflush, for one table comes twice.
#ifndef KIPT_TESTS_KERNEL_THIRD_PARTY_RULES_H_
#define KIPT_TESTS_KERNEL_THIRD_PARTY_RULES_H_

#include <string>

#include "netlink/ruleset.h"

namespace kipt::testing {

// Those that we spell, of each kind of program and each option.
std::string ThirdPartyRules(netlink::Family family);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_THIRD_PARTY_RULES_H_
