// SPDX-License-Identifier: Apache-2.0
//
// The proof that a packet was dropped: a DROP rule of filter counted it, with its bytes.
#ifndef KIPT_TESTS_SKEW_PROBES_DROP_COUNTERS_H_
#define KIPT_TESTS_SKEW_PROBES_DROP_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/skew/node/test_node.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

struct DropCounter {
  // "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP", or ":INPUT DROP" of a chain's policy.
  std::string rule;
  uint64_t packets = 0;
  uint64_t bytes = 0;

  bool operator==(const DropCounter&) const = default;
};
using DropCounters = std::vector<DropCounter>;

// Of a text as `iptables-save -c` writes it.
DropCounters DropCountersIn(absl::string_view save);

// Of the table filter on the node, at this moment. Reading makes no table. Internal: the error of
// iptables-MODE-save.
absl::StatusOr<DropCounters> ReadDropCounters(const TestNode& node, testing::IptablesMode mode,
                                              testing::IpFamily family);

// Which rule counted `packets` packets of `length` bytes between two readings; "" where none did.
// Streams may have sent packets of `stream_length`, another length, meanwhile: how many of either a
// rule has counted follows from its packets and its bytes.
std::string RuleThatCounted(const DropCounters& before, const DropCounters& after, uint64_t packets,
                            size_t length, size_t stream_length);

// The proof that nftables rules without counters dropped a packet: it was counted before their
// hook, and not after. For kube-proxy's nftables mode.

// Makes a table of counters on the node, in both families, around the filter chains of kube-proxy's
// nftables mode. Packets as long as those of streams are not counted.
absl::Status MakeHookCounters(const TestNode& node);

// What each hook has dropped since: "hook input, nftables". iptables' filter, at the same priority,
// may have done it; its own counters show that (ReadDropCounters()).
absl::StatusOr<DropCounters> ReadHookCounters(const TestNode& node, testing::IpFamily family);

// Of a text as `nft list table` writes it.
DropCounters HookCountersIn(absl::string_view listing);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_DROP_COUNTERS_H_
