// SPDX-License-Identifier: Apache-2.0
//
// The proof that nftables rules without counters dropped a packet: it was counted before their
// hook, and not after. For kube-proxy's nftables mode.
#ifndef KIPT_TESTS_SKEW_PROBES_HOOK_COUNTERS_H_
#define KIPT_TESTS_SKEW_PROBES_HOOK_COUNTERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/drop_counters.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// Makes a table of counters on the node, in both families, around the filter chains of kube-proxy's
// nftables mode. Packets as long as those of streams are not counted.
absl::Status MakeHookCounters(const TestNode& node);

// What each hook has dropped since: "hook input, nftables". iptables' filter, at the same priority,
// may have done it where its own counters say so (ReadDropCounters()).
absl::StatusOr<DropCounters> ReadHookCounters(const TestNode& node, testing::IpFamily family);

// Of a text as `nft list table` writes it.
DropCounters HookCountersIn(absl::string_view listing);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_HOOK_COUNTERS_H_
