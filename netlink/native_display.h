// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_display.h
//
// nf_tables' own expressions in the words of iptables-save: those that iptables-nft writes where
// it has no need of xtables.
#ifndef KIPT_NETLINK_NATIVE_DISPLAY_H_
#define KIPT_NETLINK_NATIVE_DISPLAY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "netlink/attributes.h"

namespace kipt::netlink {

// "-m limit --limit 5/min", "-j NFLOG --nflog-group 3". Empty where the expression is another, or
// says anything beyond what is known here.
std::string DisplayNative(absl::string_view name, const Attributes& data);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_DISPLAY_H_
