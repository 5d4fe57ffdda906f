// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/native_martians.h
//
// The martian-packet rule of KUBE-FIREWALL (KEP-3178, CVE-2020-8558) in nf_tables' own words, in a
// table of our own: for kernels on which iptables can hold no rule. Drops exactly what that rule
// drops.
#ifndef KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_
#define KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_

#include "absl/strings/string_view.h"
#include "netlink/native_table.h"

namespace kipt::agent {

// Of family ip. Nobody else has a reason to write to it.
inline constexpr absl::string_view kNativeTable = "kube-iptables-agent";

// Chains `input` and `output`, of two rules each.
netlink::NativeTable NativeMartians();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_
