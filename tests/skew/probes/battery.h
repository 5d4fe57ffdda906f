// SPDX-License-Identifier: Apache-2.0
//
// Listeners at every place of a test node, and callers: real TCP and UDP.
#ifndef KIPT_TESTS_SKEW_PROBES_BATTERY_H_
#define KIPT_TESTS_SKEW_PROBES_BATTERY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/probe.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// Where somebody listens, both families, TCP and UDP.
struct ListenerPorts {
  Place place = Place::kNode;
  std::vector<int> ports;
};

// What became of a packet that came to `place`, where `source` was seen. `own_address`: of who sent
// it.
Outcome OutcomeAt(Place place, const std::string& source, const std::string& own_address,
                  const std::vector<std::string>& node_addresses);

class Battery {
 public:
  // `node` must outlive it. Listening on the node stands for the programs that packets reach which
  // should have been served or dropped. `nftables`: kube-proxy's nftables mode may drop packets
  // (drop_counters.h).
  static absl::StatusOr<std::unique_ptr<Battery>> Create(const TestNode& node,
                                                         const std::vector<ListenerPorts>& ports,
                                                         bool nftables = false);
  virtual ~Battery() = default;

  // Asks everything; the results are in the order of `probes`. Every probe is first asked together
  // with the others; those that nobody answered are asked once more, each alone, between two
  // readings of the DROP rules' counters (`iptables-MODE-save -c -t filter` of `mode`), which is
  // what tells kDropped from kLost. Streams may go on meanwhile. Nobody else may have packets
  // dropped: they could hide a probe's, or, of the same length, be taken for it. No time-out
  // decides anything: that all packets have come is known (sockets.h).
  //
  // InvalidArgument: a probe that cannot be asked. DeadlineExceeded: the machine's packet queues do
  // not move. Internal: what iptables-MODE-save said.
  virtual absl::StatusOr<std::vector<ProbeResult>> Ask(const std::vector<Probe>& probes,
                                                       testing::IptablesMode mode) = 0;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_BATTERY_H_
